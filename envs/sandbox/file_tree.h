// A file tree serialized to bytes, to be restored elsewhere.
//
// Kept are folders, regular files, symbolic links and pipes with their modes and times; hard links become files of
// their own, sockets and devices are left out. Thread safety: none is needed; the functions work on the tree they are
// given.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

// Below the temporary files: folders that are mounted at other paths of a sandbox, by the last parts of those.
inline constexpr const char* kPlaces = "/tmp/.tandem";

inline constexpr size_t kLargestTree = size_t{48} << 20;  // bytes of all files and names
inline constexpr size_t kMostTreeEntries = 50'000;

struct TreeEntry {
  // With the type. Without one: a file that is there and could not be read, so that nobody takes it for deleted.
  mode_t mode = 0;
  uint64_t seconds = 0, nanoseconds = 0;
  std::string path;     // relative to the root; never leads out of it
  std::string content;  // of a file; where a link leads
};

// Whether a path, relative to the root, is left out; of a folder with all that is in it.
using LeavesOut = std::function<bool(const std::string& path)>;

// Packs the tree below `root` in at most `limit` bytes. kExhausted, with the reason, beyond the limits. A file that is
// written meanwhile may be caught half-way.
Result<std::string> pack_tree(const std::filesystem::path& root, size_t limit = kLargestTree,
                              const LeavesOut& leaves_out = {});

// The same bytes from entries and back; folders come before what is in them. kCorrupt for bytes that were not packed.
std::string pack_entries(std::span<const TreeEntry> entries);
Result<std::vector<TreeEntry>> read_tree(std::string_view bytes);

// Makes what was packed below `root`, in place of what is there. kCorrupt for bytes that pack_tree did not make; then
// parts of it may have been made. Never writes outside of `root`, whatever the bytes say.
Status unpack_tree(const std::filesystem::path& root, std::string_view bytes);

}  // namespace tandem::envs
