#include "run/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem::run {

Result<int64_t> LocalLauncher::start(const Job& job) {
  FileDescriptor log(::open(job.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return fail(Status::from_errno(job.log.string(), errno));
  std::vector<const char*> arguments = {"tandem"};
  for (const std::string& argument : job.arguments) arguments.push_back(argument.c_str());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(Status::from_errno("fork", errno));
  if (pid == 0) {
    ::dup2(log.get(), STDOUT_FILENO);
    ::dup2(log.get(), STDERR_FILENO);
    ::setpgid(0, 0);  // a Ctrl-C at the terminal is for the supervisor
    // A supervisor that dies takes its roles with it, also one that died before this line.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::execv("/proc/self/exe", const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  children_.insert(pid);
  return pid;
}

std::vector<Ending> LocalLauncher::poll() {
  std::vector<Ending> ended;
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
    ended.push_back(ending);
    it = children_.erase(it);
  }
  return ended;
}

void LocalLauncher::end(int64_t process, EndKind kind) {
  const auto pid = static_cast<pid_t>(process);
  if (children_.contains(pid)) ::kill(pid, kind == EndKind::kAsk ? SIGTERM : SIGKILL);
}

void LocalLauncher::await(int64_t process) {
  const auto pid = static_cast<pid_t>(process);
  if (children_.erase(pid) > 0) ::waitpid(pid, nullptr, 0);
}

}  // namespace tandem::run
