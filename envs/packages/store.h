// Files of registries that are kept on this machine, by their SHA-256: $XDG_CACHE_HOME/tandem/packages (~/.cache).
//
//   files/DIGEST      whole and checked; the time of its last change is when it was used last
//   names/sha512-HEX  the SHA-256 of the file with that other digest
//   locks/KEY         held while a thread of any process fetches what KEY names
//   incoming/         files that are not whole yet
//
// All runs and sandboxes of a user share it. A file is put into place by a rename once its digest is known to be the
// right one, so nothing else is ever found under a digest. When the limit is passed those that were used longest ago
// go; who has one open reads on.
//
// Thread safety: all of it, between processes too.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "envs/packages/package_digest.h"

namespace tandem::envs {

// kUnfit where neither XDG_CACHE_HOME nor HOME says where.
Result<fs::path> packages_folder();

struct StoredFile {
  FileDescriptor file;
  std::string sha256;
  uint64_t bytes = 0;
};

class PackageStore {
 public:
  // Makes the folders. `most_bytes`: of all files together.
  static Result<PackageStore> open(const fs::path& folder, uint64_t most_bytes);

  // Nothing where it is not here. Notes the use. The first time in a process its bytes are checked: one that was
  // damaged on disk is removed, and fetched anew by who asked.
  std::optional<StoredFile> find(const PackageDigest& digest) const;

  // A file that is being fetched; gone again where it is not put into place.
  class Incoming {
   public:
    Incoming(Incoming&& other) noexcept = default;
    ~Incoming();
    Status add(std::string_view bytes);
    uint64_t bytes() const { return bytes_; }

   private:
    friend PackageStore;
    Incoming() = default;
    fs::path path_;
    FileDescriptor file_;
    PackageHasher hasher_;
    uint64_t bytes_ = 0;
  };
  Result<Incoming> begin() const;
  // kCorrupt, with nothing kept, where it is not what `expected` says; kNone there takes any. kExhausted where it is
  // larger than all that may be kept; otherwise others go to make room for it.
  Result<StoredFile> keep(Incoming incoming, const PackageDigest& expected) const;

  // Nobody else, of any process, has the lock of that key while this is there.
  class Lock {
   public:
    Lock(Lock&& other) noexcept = default;
    ~Lock();

   private:
    friend PackageStore;
    Lock(fs::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
    fs::path path_;
    FileDescriptor file_;
  };
  // kDeadline, kCancelled.
  Result<Lock> lock(const std::string& key, Duration wait, const std::stop_token& stop) const;

 private:
  // By SHA-256: files whose bytes this process has seen to be right.
  struct Checked {
    std::mutex mutex;
    std::set<std::string> files;
  };
  PackageStore(fs::path folder, uint64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}
  bool is_whole(const StoredFile& file) const;
  void note_whole(const std::string& sha256) const;
  // Never of the file with that SHA-256.
  void make_room(const std::string& newest) const;

  fs::path folder_;
  uint64_t most_bytes_;
  std::shared_ptr<Checked> checked_ = std::make_shared<Checked>();
};

}  // namespace tandem::envs
