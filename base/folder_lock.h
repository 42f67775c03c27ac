// One process at a time has a folder, on one machine or on several that share its file system.
//
// The kernel's lock of the folder (flock) ends with its process. FOLDER/lock.json says who has it, and goes when it is
// released. On a file system that may keep such locks to one machine (NFS, SMB, FUSE, ..) the record is a lease as
// well: the holder increments a counter in it, and a process of another machine takes the folder only after the counter
// has stood still for a while. Clocks of two machines are never compared; a waiting process reads a monotonic clock.
//
// Thread safety: one owner; check() from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/file.h"

namespace tandem {

struct FolderLockSettings {
  // Returns the type of the file system of an open folder, as statfs does. Empty: asks the kernel.
  std::function<uint64_t(int folder)> file_system = {};
  std::string machine = {};  // tells this machine's kernel from others. Empty: its boot id
  Duration beat = std::chrono::seconds(2);
  Duration patience = std::chrono::seconds(15);  // for the count of another machine to grow; several beats
};

struct LockHolder {
  std::string host;
  int64_t pid = 0;
  double since = 0;  // unix seconds, by its clock
  // "process 12 on node-3, since 2026-11-27T16:40:00Z".
  std::string to_string() const;
};

// Whether other machines that mount such a file system may not see its locks.
bool may_lock_one_machine_alone(uint64_t file_system);

class FolderLock {
 public:
  // The folder must be there. kInvalid, naming the holder, where another process has it, and where the record there is
  // of an unknown format; kUnfit where its file system
  // has no locks. Waits at most `patience`, where another machine left a record.
  static Result<FolderLock> claim(const fs::path& folder, const Clock& clock, const FolderLockSettings& settings = {});
  FolderLock(FolderLock&&) noexcept;
  FolderLock& operator=(FolderLock&&) noexcept;
  ~FolderLock();

  // kUnavailable, naming who has it now, where another machine took the folder because this process stood still.
  Status check() const;

 private:
  struct State;
  explicit FolderLock(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Reads FOLDER/lock.json; empty where it cannot be read. The process in the record may have ended.
std::optional<LockHolder> lock_holder_of(const fs::path& folder);

}  // namespace tandem
