#include "run/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host_memory.h"

namespace tandem::run {

using namespace std::chrono_literals;

namespace {

// The count may be there before the end of the process is.
constexpr auto kKillIsRecent = 3s;

// Between fork and exec the child has the handlers of its parent: a signal to end would set the flag of a program that
// is about to be replaced, and be lost. So none arrives until they are gone.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { allow(); }
  void allow() const { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // For the child: what came meanwhile does what it does to a new program.
  void allow_without_handlers() const {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action {};
      if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
      action.sa_handler = SIG_DFL;
      action.sa_flags = 0;
      ::sigaction(number, &action, nullptr);
    }
    allow();
  }

 private:
  sigset_t before_{};
};

}  // namespace

LocalLauncher::LocalLauncher() : LocalLauncher([] { return tandem::memory_kills(); }) {}
LocalLauncher::LocalLauncher(std::function<uint64_t()> memory_kills)
    : memory_kills_(std::move(memory_kills)), kills_(memory_kills_()) {}

Result<int64_t> LocalLauncher::start(const Job& job) {
  FileDescriptor log(::open(job.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return fail(Status::from_errno(job.log.string(), errno));
  std::vector<const char*> arguments = {"tandem"};
  for (const std::string& argument : job.arguments) arguments.push_back(argument.c_str());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const NoSignals held;
  const pid_t pid = ::fork();
  if (pid < 0) return fail(Status::from_errno("fork", errno));
  if (pid == 0) {
    ::dup2(log.get(), STDOUT_FILENO);
    ::dup2(log.get(), STDERR_FILENO);
    ::setpgid(0, 0);  // a Ctrl-C at the terminal is for the supervisor
    // A supervisor that dies takes its roles with it, also one that died before this line.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    held.allow_without_handlers();
    ::execv("/proc/self/exe", const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  children_.insert(pid);
  return pid;
}

std::vector<Ending> LocalLauncher::poll() {
  std::vector<Ending> ended;
  if (!looked_ || std::chrono::steady_clock::now() - *looked_ > 500ms) look_at_kills();
  for (auto it = children_.begin(); it != children_.end();) {
    int status = 0;
    if (::waitpid(*it, &status, WNOHANG) != *it) {
      ++it;
      continue;
    }
    Ending ending{.process = *it};
    if (WIFSIGNALED(status))
      ending.signal = WTERMSIG(status);
    else
      ending.code = WEXITSTATUS(status);
    // Nobody else says so: the kernel's kill is a signal 9 like any other.
    if (ending.signal == SIGKILL && !told_.contains(*it)) {
      look_at_kills();
      if (rose_ && std::chrono::steady_clock::now() - *rose_ < kKillIsRecent)
        ending.how =
            "was killed by the kernel for lack of memory (signal 9; `tandem run --dry-run` says what roles need)";
    }
    ended.push_back(ending);
    told_.erase(*it);
    it = children_.erase(it);
  }
  return ended;
}

void LocalLauncher::look_at_kills() {
  looked_ = std::chrono::steady_clock::now();
  const uint64_t kills = memory_kills_();
  if (kills > kills_) rose_ = looked_;
  kills_ = kills;
}

void LocalLauncher::end(int64_t process, EndKind kind) {
  const auto pid = static_cast<pid_t>(process);
  if (!children_.contains(pid)) return;
  if (kind == EndKind::kNow) told_.insert(pid);
  ::kill(pid, kind == EndKind::kAsk ? SIGTERM : SIGKILL);
}

void LocalLauncher::await(int64_t process) {
  const auto pid = static_cast<pid_t>(process);
  told_.erase(pid);
  if (children_.erase(pid) > 0) ::waitpid(pid, nullptr, 0);
}

}  // namespace tandem::run
