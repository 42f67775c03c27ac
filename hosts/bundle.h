// Files of a run that its hosts need: model, tasks and profile.
#pragma once

#include <string>
#include <vector>

#include "hosts/protocol.h"
#include "run/config.h"

namespace tandem::hosts {

// Names within a run's home on a host.
inline constexpr const char *kHomeModel = "model", *kHomeTasks = "tasks", *kHomeHarness = "harness.yaml",
                            *kHomeEncoder = "encoder", *kPackagesLock = "packages.lock";

struct Bundle {
  std::vector<HomeFile> files;
  std::vector<fs::path> sources;  // of each file, on this machine
};

// All files below `folder`, as files below `to` of the home; or `folder` itself where it is a file. A symbolic link
// within the folder stays one; one to a file elsewhere becomes that file. kInvalid for a link to a folder elsewhere,
// and for what is neither file, folder nor link.
Status add_folder(const fs::path& folder, const std::string& to, Bundle& bundle);

// The bundle of the run in `run_dir`, which has its model already. kInvalid where there are more files than a host
// takes.
Result<Bundle> bundle_of(const run::RunConfig& config, const fs::path& run_dir);

// Where things of other places lie in a home, or in a copy of the run directory, by the key of the config that names
// them: {"tasks.path": "tasks", ..}.
Result<Json> moved_paths(const run::RunConfig& config, const fs::path& run_dir);

// The small files that are made for the run's home at `home`: config, tasks and profile, with paths that are there.
Result<std::vector<HomeText>> texts_of(const run::RunConfig& config, const fs::path& run_dir, const fs::path& home);

}  // namespace tandem::hosts
