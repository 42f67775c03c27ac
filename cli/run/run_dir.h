// Which folder a run has where --run-dir does not say it: STEM-DATE-TIME below run.dir, STEM being the name of the
// config's file; where two start in one second, the later has "-2" after it.
//
// Thread safety: none needed. Several processes may choose at once.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"

namespace tandem::cli {

// The newest run of `stem` in `folder` that is not done; where all are, the newest. Folders that have been given
// another name, and folders without a run, do not count. kInvalid where there is none.
Result<fs::path> newest_run(const fs::path& folder, const std::string& stem);

// The newest that is not done; nothing where there is none.
std::optional<fs::path> newest_open_run(const fs::path& folder, const std::string& stem);

// A name for a run that starts now, of which there is no folder yet.
fs::path free_run_dir(const fs::path& folder, const std::string& stem);

// The same, made: nobody else gets it.
Result<fs::path> make_run_dir(const fs::path& folder, const std::string& stem);

}  // namespace tandem::cli
