// Files of rules that ripgrep would open and never come to the end of. Private to envs/tools.
//
// Thread safety: none needed.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "envs/tools/paths.h"

namespace tandem::envs {

// kInvalid, with its name, where a .gitignore, .ignore or .rgignore that a search of `folder` reads is a pipe, a socket
// or a device. Trees of very many entries are not looked through in whole.
Status check_ignore_files(const ToolContext& context, const std::filesystem::path& folder);

}  // namespace tandem::envs
