#include "cli/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace tandem::cli {
namespace {

constexpr uint64_t kSignal = 1, kEnd = uint64_t{1} << 32;

std::atomic<int> wake_descriptor{-1};

void note_signal(int number) {
  std::signal(number, SIG_DFL);  // a second one ends everything at once
  const int error = errno;
  (void)!::write(wake_descriptor, &kSignal, sizeof kSignal);
  errno = error;
}

}  // namespace

Result<std::unique_ptr<Interrupt>> Interrupt::listen() {
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake) return fail(Status::from_errno("eventfd", errno));
  return std::unique_ptr<Interrupt>(new Interrupt(std::move(wake)));
}

Interrupt::Interrupt(FileDescriptor wake) : wake_(std::move(wake)) {
  wake_descriptor = wake_.get();
  waiting_ = std::jthread([this] {
    for (uint64_t seen = 0; seen < kEnd;) {
      if (::read(wake_.get(), &seen, sizeof seen) != sizeof seen && errno != EINTR) return;
      if (seen % kEnd != 0) source_.request_stop();
    }
  });
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  (void)!::write(wake_.get(), &kEnd, sizeof kEnd);
}

}  // namespace tandem::cli
