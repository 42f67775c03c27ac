#include "base/turns.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace tandem {

namespace {

// A byte for each side. Who wakes locks its own and then looks at the other's; who takes the turn locks its own and
// then waits for the other's. So one of two that do it at once sees the other.
constexpr off_t kTaken = 0, kAwake = 1;

struct flock lock_of(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool set(const FileDescriptor& file, int command, short type, off_t byte) {
  struct flock lock = lock_of(type, byte);
  int code = ::fcntl(file.get(), command, &lock);
  while (code != 0 && errno == EINTR) code = ::fcntl(file.get(), command, &lock);
  return code == 0;
}

}  // namespace

Result<Turns> Turns::open(const fs::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return fail(Status::unavailable(std::strerror(errno)).at(path.string()));
  if (!set(file, F_OFD_SETLK, F_UNLCK, kTaken))
    return fail(Status::unfit(fmt::format("its file system has no locks: {}", std::strerror(errno))).at(path.string()));
  return Turns(std::move(file));
}

Status Turns::take() {
  if (set(file_, F_OFD_SETLKW, F_RDLCK, kTaken) && set(file_, F_OFD_SETLKW, F_WRLCK, kAwake) &&
      set(file_, F_OFD_SETLK, F_UNLCK, kAwake))
    return {};
  return Status::unavailable(fmt::format("the turn at a device cannot be taken: {}", std::strerror(errno)));
}
void Turns::give_back() { set(file_, F_OFD_SETLK, F_UNLCK, kTaken); }

bool Turns::is_wanted() const {
  struct flock lock = lock_of(F_WRLCK, kTaken);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
bool Turns::wake() {
  if (!set(file_, F_OFD_SETLK, F_RDLCK, kAwake)) return false;
  if (!is_wanted()) return true;
  sleep();
  return false;
}
Status Turns::wake_when_free() {
  while (!wake()) {
    // Whoever takes the turn meanwhile waits for no longer than this lock is held.
    if (!set(file_, F_OFD_SETLKW, F_WRLCK, kTaken) || !set(file_, F_OFD_SETLK, F_UNLCK, kTaken))
      return Status::unavailable(fmt::format("the turn at a device cannot be waited for: {}", std::strerror(errno)));
  }
  return {};
}
void Turns::sleep() { set(file_, F_OFD_SETLK, F_UNLCK, kAwake); }

}  // namespace tandem
