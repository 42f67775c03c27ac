// packages.lock: every index page and file that a run has used, by its digest, so that the same can be installed again.
//
//   {"format": 1, "entries": {"pypi/simple/six": {"sha256": .., "bytes": .., "url": .., "page": true}, ..}}
//
// Pages lie beside it in packages/SHA256, for a registry has no old ones; files are at their URL still, or in the
// store. Thread safety: all of PackageLock, between processes too: what was recorded first counts.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

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
// Where the pages of a lock lie.
inline fs::path pages_of_lock(const fs::path& lock) { return lock.parent_path() / "packages"; }

class PackageLock {
 public:
  // What was recorded in it before counts, if it is there. An empty path: nothing is written.
  static Result<PackageLock> open(const fs::path& file);
  PackageLock(PackageLock&& other) noexcept : file_(std::move(other.file_)), files_(std::move(other.files_)) {}

  std::optional<LockedFile> find(const std::string& key) const;
  // Looks at the file again first: another process may have recorded it meanwhile.
  std::optional<LockedFile> find_written(const std::string& key);
  // The entry that counts: this one, or another that was recorded before. `content` is written beside it, of a page.
  Result<LockedFile> record(const std::string& key, const LockedFile& file, std::string_view content);
  const fs::path& file() const { return file_; }

 private:
  explicit PackageLock(fs::path file, LockedFiles files) : file_(std::move(file)), files_(std::move(files)) {}
  fs::path file_;
  mutable std::mutex mutex_;
  LockedFiles files_;
};

}  // namespace tandem::envs
