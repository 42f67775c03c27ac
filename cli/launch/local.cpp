#include "cli/launch/local.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/exit_code.h"
#include "launch/verdict.h"

namespace tandem::cli {
namespace {

// Those that ask a job to stop, blocked while it runs and waited for.
sigset_t stop_and_child_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) ::sigaddset(&set, number);
  return set;
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::vector<std::string> command_of(const launch::Job& job, const launch::Variant& variant) {
  std::vector<std::string> words = {
      job.program, "run", job.config, "--run-dir", job.run_dir_of(variant).string(), "--resume-or-start"};
  words.insert(words.end(), job.overrides.begin(), job.overrides.end());
  words.insert(words.end(), variant.overrides.begin(), variant.overrides.end());
  return words;
}

// In a process group of its own, so that a Ctrl-C at the terminal reaches it through us alone.
Result<pid_t> start_run(const std::vector<std::string>& words, const sigset_t& mask, bool quiet) {
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(Status::from_errno("fork", errno));
  if (pid > 0) return pid;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that dies asks the run to stop
  if (::getppid() != parent) ::_exit(kInterrupted);
  if (quiet) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nothing, STDOUT_FILENO);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execv(arguments[0], const_cast<char**>(arguments.data()));
  ::_exit(127);
}

// Waits for the run, and hands on what this process is told; true in `stopped` where that was so. The status as a shell
// says it.
int wait_for(pid_t pid, const sigset_t& signals, bool& stopped) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return 127;
    const timespec limit{1, 0};
    const int number = ::sigtimedwait(&signals, nullptr, &limit);
    if (number < 0 || number == SIGCHLD) continue;
    stopped = true;
    ::kill(pid, number);
  }
}

Result<int> run_variant(const launch::Job& job, const launch::Variant& variant, const sigset_t& signals,
                        const sigset_t& before, bool quiet) {
  const fs::path run_dir = job.run_dir_of(variant);
  TRY(make_directories(run_dir));
  FileDescriptor log(::open((run_dir / "job.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return fail(Status::from_errno((run_dir / "job.log").string(), errno));
  const auto note = [&](int attempt, const std::string& what) {
    const std::string line = fmt::format("{} attempt {}: {}\n", utc_time(), attempt, what);
    fmt::print(stderr, "{}", line);
    return write_all(log.get(), line, "job.log");
  };
  launch::History history{.most_restarts = job.most_restarts};
  for (int attempt = 0;; ++attempt) {
    TRY(note(attempt, fmt::format("{} begins", run_dir.string())));
    const pid_t pid = TRY(start_run(command_of(job, variant), before, quiet));
    const int status = wait_for(pid, signals, history.stopped);
    const launch::Verdict verdict = launch::judge(status, history);
    TRY(note(attempt, fmt::format("exit code {}: {}", verdict.exit_code, verdict.words)));
    if (verdict.next == launch::Next::kEnd) return verdict.exit_code;
    ++history.restarts;
    history.crashes += verdict.crashed ? 1 : 0;
  }
}

}  // namespace

Result<int> run_here(const launch::Job& job, bool quiet) {
  const sigset_t signals = stop_and_child_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  for (const launch::Variant& variant : job.variants) {
    const int code = TRY(run_variant(job, variant, signals, before, quiet));
    if (code != kDone) return code;
  }
  return kDone;
}

}  // namespace tandem::cli
