#include "envs/sandbox/log_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file.h"

namespace tandem::envs {
namespace {

constexpr int kMostCuts = 8;               // of what is written during a cut, by a program that never rests
constexpr int kLogTurnMilliseconds = 250;  // where the kernel has no more watches to give

std::string read_log(int log, off_t begin, off_t size) {
  std::string text(static_cast<size_t>(std::max<off_t>(size, 0)), '\0');
  const ssize_t count = pread(log, text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

off_t size_of(int log) {
  struct stat info {};
  return fstat(log, &info) == 0 ? info.st_size : 0;
}

struct CutOff {
  off_t bytes = 0;
  off_t mark = 0;  // of the line that the log begins with
};

// Writes the end over the begin and cuts off the rest, so that the log begins with its mark at each moment, whoever
// writes beside. What comes during the cut is kept; what comes between the last look at the size and the cut is lost.
void cut_log(int log, CutOff& left_out) {
  off_t size = size_of(log);
  if (size <= kLargestLog) return;
  std::string end = read_log(log, size - kKeptOfLog, kKeptOfLog);
  if (const size_t line = end.find('\n'); line != std::string::npos && line + 1 < end.size()) end.erase(0, line + 1);
  left_out.bytes += size - static_cast<off_t>(end.size()) - left_out.mark;
  if (lseek(log, 0, SEEK_SET) < 0) return;
  const std::string mark = fmt::format("[... {} bytes left out ...]\n", left_out.bytes);
  left_out.mark = static_cast<off_t>(mark.size());
  std::string text = mark + end;
  for (int round = 0; !text.empty(); ++round) {
    if (!write_all(log, text, "log")) return;
    text = read_log(log, size, round < kMostCuts ? kKeptOfLog : 0);
    size += static_cast<off_t>(text.size());
  }
  left_out.bytes += std::max<off_t>(size_of(log) - size, 0);
  (void)!ftruncate(log, lseek(log, 0, SEEK_CUR));
}

[[noreturn]] void watch_log(int log, int program, int watch) {
  CutOff left_out;
  for (bool is_on = true; is_on;) {
    std::array<pollfd, 2> waits = {pollfd{program, POLLIN, 0}, pollfd{watch, POLLIN, 0}};
    if (poll(waits.data(), waits.size(), watch < 0 ? kLogTurnMilliseconds : -1) < 0 && errno != EINTR) break;
    is_on = waits[0].revents == 0;
    std::array<char, 4096> events;
    while (watch >= 0 && read(watch, events.data(), events.size()) > 0) {
    }
    cut_log(log, left_out);
  }
  _exit(0);
}

}  // namespace

Status guard_log(const std::string& log, pid_t program) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, program, 0)));
  if (!process) return Status::from_errno("pidfd_open", errno);
  const FileDescriptor file(open(log.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return Status::from_errno(log, errno);
  FileDescriptor watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (watch && inotify_add_watch(watch.get(), log.c_str(), IN_MODIFY) < 0) watch.reset();
  const pid_t guard = fork();
  if (guard < 0) return Status::from_errno("fork", errno);
  if (guard > 0) return {};
  signal(SIGTERM, SIG_DFL);
  // Another end of the program's socket, or of the caller's answer, would hide that these have ended.
  const int most = static_cast<int>(std::min(sysconf(_SC_OPEN_MAX), 4096L));
  for (int each = 3; each < most; ++each) {
    if (each != file.get() && each != process.get() && each != watch.get()) close(each);
  }
  watch_log(file.get(), process.get(), watch.get());
}

}  // namespace tandem::envs
