// The files of a copy: carries requests out, and has them on disk when it says so.
//
// A file that is put lies beside its place until it is whole and has its digest. What was changed since the last sync()
// is forced to the disk there, once a file, however many requests changed it.
//
// Thread safety: none; one process at a time, under the lock of the directory's record (record.h).
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "standby/protocol.h"

namespace tandem::standby {

class Copy {
 public:
  explicit Copy(fs::path folder) : folder_(std::move(folder)) {}

  // Lists files at and below the paths. kExhausted for more than kMostFiles.
  Result<std::vector<FoundFile>> survey(const std::vector<std::string>& paths);
  // kInvalid where the request does not follow what is there, kCorrupt where a file that is whole has another digest.
  Status extend(const Extend& extend, std::span<const std::byte> bytes);
  Status put(const Put& put, std::span<const std::byte> bytes);
  Status link(const Link& link);
  Status remove(const Remove& remove);
  Status sync();

  const fs::path& folder() const { return folder_; }

 private:
  struct Coming {
    FileDescriptor file;
    uint64_t have = 0;
  };
  struct Log {
    FileDescriptor file;
    uint64_t size = 0;
    bool is_changed = false;
  };
  Status make_parents(const std::string& path);
  Result<Log*> log(const std::string& path);
  fs::path aside(const std::string& path) const;

  const fs::path folder_;
  std::map<std::string, Coming> coming_;
  std::map<std::string, Log> logs_;
  std::set<fs::path> changed_folders_;
};

}  // namespace tandem::standby
