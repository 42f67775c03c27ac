// Options of the file systems in memory that sandboxes write to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace tandem::envs {

// A bound on bytes, and one on files and folders: as many as there are pages, and 65,536 on a small one; `more` beside
// these are ours.
inline std::string tmpfs_bounds(uint64_t bytes, uint64_t more = 0) {
  const uint64_t files = std::max<uint64_t>(65536, bytes / 4096) + more;
  return "size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(files);
}

}  // namespace tandem::envs
