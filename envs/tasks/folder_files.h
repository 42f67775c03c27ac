// Files of a folder of this machine as files of a task.
#pragma once

#include <set>
#include <string>

#include "base/file.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Limits for a medium-sized repository; below those of files collected from a workspace.
inline constexpr size_t kMostTaskFiles = 8'000;
inline constexpr uint64_t kMostTaskBytes = uint64_t{24} << 20;

// Adds what `source` holds (a file, or a folder with all below it) at `target` of the workspace; "" is its root. Left
// out are `.git`, which holds more than a task may show, and `__pycache__`. kInvalid, with the path, for links and the
// like, and where the task would have more than kMostTaskFiles files or kMostTaskBytes bytes.
Status add_folder_files(const fs::path& source, const std::string& target, Files& files,
                        std::set<std::string>& programs);

// kInvalid where there are more or larger files than a task may have.
Status check_size(const Files& files);

}  // namespace tandem::envs
