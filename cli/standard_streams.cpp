#include "cli/standard_streams.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

namespace tandem::cli {

namespace {

// No SIGPIPE reaches this thread while it lives: one that a write raised is taken. Standard output keeps it, since
// `tandem episodes RUN | head` is to end with its reader.
class WithoutBrokenPipe {
 public:
  WithoutBrokenPipe() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WithoutBrokenPipe() {
    const timespec at_once = {};
    while (!was_pending_ && sigtimedwait(&signals_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipe(const WithoutBrokenPipe&) = delete;
  WithoutBrokenPipe& operator=(const WithoutBrokenPipe&) = delete;

 private:
  sigset_t signals_ = {};
  sigset_t before_ = {};
  bool was_pending_ = false;
};

// A full disk behind standard error makes fmt throw, and a pipe without a reader raises SIGPIPE: the program would end
// by it.
ssize_t write_or_leave_out(void*, const char* bytes, size_t count) {
  const WithoutBrokenPipe without;
  size_t written = 0;
  while (written < count) {
    const ssize_t now = ::write(STDERR_FILENO, bytes + written, count - written);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) break;
    written += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(count);
}

}  // namespace

void prepare_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one.
    if (::open("/dev/null", O_RDWR) < 0) return;
  }
  FILE* const errors =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_or_leave_out, .seek = nullptr, .close = nullptr});
  if (errors == nullptr) return;
  ::setvbuf(errors, nullptr, _IONBF, 0);
  stderr = errors;
}

Status finish_standard_output() {
  const bool failed = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed) return {};
  return Status::from_errno("standard output", errno != 0 ? errno : EIO);  // of an earlier write, whose error is gone
}

}  // namespace tandem::cli
