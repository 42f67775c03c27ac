// packages.lock: every index page and file that a run has used, by its digest, so that the same can be installed again.
//
//   {"format":2}
//   {"key": "pypi/simple/six", "sha256": .., "bytes": .., "url": .., "page": true}
//
// A line an entry; a line is only ever added. A last line without its end is one that a crash cut short: it says
// nothing. Format 1, one object with all entries, is read as well, and written anew in format 2 before the first entry
// that comes to it. Pages lie beside it in packages/SHA256, for a registry has no old ones; files are at their URL
// still, or in the store.
//
// Thread safety: all of PackageLock, between processes too: what was recorded first counts.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace tandem::envs {

struct LockedFile {
  std::string sha256, url;
  uint64_t bytes = 0;
  bool is_page = false;
  friend bool operator==(const LockedFile&, const LockedFile&) = default;
};
using LockedFiles = std::map<std::string, LockedFile>;

// kInvalid or kCorrupt, naming the file and what is wrong with it.
Result<LockedFiles> read_package_lock(const fs::path& file);
Result<LockedFiles> parse_package_lock(std::string_view text);

inline constexpr const char* kLockName = "packages.lock";
inline constexpr size_t kMostLocked = 200'000;                        // entries
inline constexpr uint64_t kMostLockedPageBytes = uint64_t{16} << 30;  // of all pages beside a lock
// Where the pages of a lock lie.
inline fs::path pages_of_lock(const fs::path& lock) { return lock.parent_path() / "packages"; }

struct LockLimits {
  size_t entries = kMostLocked;
  uint64_t page_bytes = kMostLockedPageBytes;
};

class PackageLock {
 public:
  // Earlier records in an existing file stay valid. An empty path: nothing is written.
  static Result<PackageLock> open(const fs::path& file, const LockLimits& limits = {});
  PackageLock(PackageLock&& other) noexcept
      : file_(std::move(other.file_)), limits_(other.limits_), known_(std::move(other.known_)) {}

  std::optional<LockedFile> find(const std::string& key) const;
  // Looks at the file again first: another process may have recorded it meanwhile.
  std::optional<LockedFile> find_written(const std::string& key);
  // The entry that counts: this one, or another that was recorded before. `content` is written beside it, of a page.
  // Durable when it returns. kUnavailable, with nothing recorded, where the file cannot be written or the limits are
  // reached.
  Result<LockedFile> record(const std::string& key, const LockedFile& file, std::string_view content);
  const fs::path& file() const { return file_; }

 private:
  // The content of the file.
  struct Known {
    LockedFiles files;
    uint64_t page_bytes = 0;
    uint64_t inode = 0;
    uint64_t bytes = 0;  // whole lines; 0: none, or of format 1
  };
  PackageLock(fs::path file, const LockLimits& limits) : file_(std::move(file)), limits_(limits) {}
  void add(std::string key, LockedFile file);
  Status catch_up();
  Status append(const std::string& key, const LockedFile& file);

  fs::path file_;
  LockLimits limits_;
  mutable std::mutex mutex_;
  Known known_;
};

}  // namespace tandem::envs
