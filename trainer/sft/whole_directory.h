// A directory that is written whole or not at all.
#pragma once

#include <functional>

#include "base/file.h"

namespace tandem::trainer {

// Calls `write` with a path beside `directory`, `.NAME.PID.tmp`, and renames that to `directory`, which is replaced.
// Where `write` fails nothing is left of it; what a process left that was killed is removed first. One process at a
// time.
Status write_whole_directory(const fs::path& directory, const std::function<Status(const fs::path&)>& write);

}  // namespace tandem::trainer
