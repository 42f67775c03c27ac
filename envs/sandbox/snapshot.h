// A tree of files as bytes, so that it can be made again elsewhere.
//
// Kept are folders, regular files, symbolic links and pipes with their modes and times; hard links become files of
// their own, sockets are left out. Thread safety: none is needed; the functions work on the tree they are given.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::envs {

inline constexpr size_t kLargestTree = size_t{48} << 20;  // bytes of all files and names
inline constexpr size_t kMostTreeEntries = 50'000;

// What is below `root`, in at most `limit` bytes. kExhausted, with what was too much, beyond the limits. A file that is
// written meanwhile may be caught half-way.
Result<std::string> pack_tree(const std::filesystem::path& root, size_t limit = kLargestTree);

// Makes what was packed below `root`, in place of what is there. kCorrupt for bytes that pack_tree did not make; then
// parts of it may have been made. Never writes outside of `root`, whatever the bytes say.
Status unpack_tree(const std::filesystem::path& root, std::string_view bytes);

}  // namespace tandem::envs
