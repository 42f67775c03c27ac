// Resolves paths written by a model to files below the root.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

// The file below the root that `path` names: relative to the root, or absolute below the shown root. Symbolic links are
// followed, and refused where they leave the root. The file need not exist. The message of an error is for a model.
Result<std::filesystem::path> resolve(const ToolContext& context, std::string_view path);

// The same for the entry itself: where `path` ends in a symbolic link, the link and not what it names.
Result<std::filesystem::path> resolve_entry(const ToolContext& context, std::string_view path);

// The root without symbolic links, as the paths of `resolve` have it.
std::filesystem::path real_root(const ToolContext& context);

// `path` below the root as a model would write it: "src/a.py".
std::string shown(const ToolContext& context, const std::filesystem::path& path);

// The hint for a missing file: the nearest name, or the entries of its folder.
std::string missing_file(const ToolContext& context, std::string_view path);

// Files below the root as shown, sorted, without .git; at most `limit` of them.
std::vector<std::string> files_below(const ToolContext& context, size_t limit);

// Files below a folder of the workspace as shown, sorted, without .git and without what .gitignore and .ignore files
// leave out where the workspace is a repository. Needs ripgrep to know the latter; without it nothing is left out.
Result<std::vector<std::string>> files_not_ignored(const ToolContext& context, const std::filesystem::path& folder);

// A hidden name in the folder of `path`, for what is to take its place: `.NAME` and `ending`. Of a name that is too
// long for that its beginning and a number.
std::filesystem::path name_beside(const std::filesystem::path& path, std::string_view ending);

// A number that changes when a file below the root does. Contents count for small trees, names, sizes and times for
// large ones.
uint64_t fingerprint(const std::filesystem::path& root);

}  // namespace tandem::envs
