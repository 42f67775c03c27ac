// Files of rules that ripgrep would open and never come to the end of. Private to envs/tools.
//
// Thread safety: none needed.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "envs/tools/paths.h"

namespace tandem::envs {

// kInvalid, with its name, where a .gitignore, .ignore or .rgignore that a search of `folder` reads is a pipe, a socket
// or a device. `most_entries`: how many names below are looked at. Few before a search, which must not wait for a walk
// of its own; all where one has come to no end, to say why.
inline constexpr size_t kIgnoreFilesBefore = 5000, kIgnoreFilesAfter = 200'000;
Status check_ignore_files(const ToolContext& context, const std::filesystem::path& folder,
                          size_t most_entries = kIgnoreFilesBefore);

}  // namespace tandem::envs
