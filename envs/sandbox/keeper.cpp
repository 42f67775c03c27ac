#include "envs/sandbox/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/file.h"
#include "envs/sandbox/process_fields.h"

namespace tandem::envs {

const char* const kKeepArgument = "--tandem-keep";

namespace {

constexpr int kCannotStart = 127;
// Without pidfds it is asked so often who is still there.
constexpr int kExecMilliseconds = 200;

int open_process(pid_t process) { return static_cast<int>(syscall(SYS_pidfd_open, process, 0)); }

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The kernel's list of them; where it was built without, all processes are looked at.
std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  const std::string self = std::to_string(getpid());
  if (const FileDescriptor list(open(("/proc/self/task/" + self + "/children").c_str(), O_RDONLY | O_CLOEXEC)); list) {
    std::array<char, 65536> text{};
    const ssize_t size = read(list.get(), text.data(), text.size());
    std::istringstream words(std::string(text.data(), size > 0 ? static_cast<size_t>(size) : 0));
    for (pid_t child; words >> child;) children.push_back(child);
    return children;
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto fields = process_fields(name);
    if (fields.size() > 1 && fields[1] == self) children.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return children;
}

// Until nobody is left: children of those that end become ours.
void end_everybody() {
  constexpr int kMostRounds = 20'000, kPauseMicroseconds = 500;
  for (int round = 0; round < kMostRounds; ++round) {
    for (const pid_t child : own_children()) kill(child, SIGKILL);
    pid_t ended = 0;
    while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (ended < 0 && errno == ECHILD) return;
    usleep(kPauseMicroseconds);
  }
}

void let_go_of_streams() {
  const int none = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = 0; stream < 3; ++stream) dup2(none, stream);
}

[[noreturn]] void become_program(char** argv, pid_t keeper, const sigset_t& signals) {
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(kCannotStart);
  execv(argv[0], argv);
  dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
  _exit(kCannotStart);
}

[[noreturn]] void keep(char** argv, pid_t outer, int outer_end, pid_t server, int server_end) {
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t children, before;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, &before);
  const int ends = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t self = getpid();
  const pid_t program = fork();
  if (program < 0) _exit(kCannotStart);
  if (program == 0) become_program(argv, self, before);
  let_go_of_streams();
  int status = 0;
  for (bool is_on = true; is_on;) {
    std::array<pollfd, 3> waits = {pollfd{ends, POLLIN, 0}, pollfd{outer_end, POLLIN, 0},
                                   pollfd{server_end, POLLIN, 0}};
    const bool is_told = ends >= 0 && outer_end >= 0 && server_end >= 0;
    poll(waits.data(), waits.size(), is_told ? -1 : kExecMilliseconds);
    std::array<signalfd_siginfo, 16> said;
    while (ends >= 0 && read(ends, said.data(), sizeof said) > 0) {
    }
    for (pid_t ended; is_on && (ended = waitpid(-1, &status, WNOHANG)) > 0;) is_on = ended != program;
    if (!is_on) break;
    const bool is_server_gone = waits[2].revents != 0 || (kill(server, 0) != 0 && errno == ESRCH);
    is_on = waits[1].revents == 0 && getppid() == outer && !is_server_gone;
    if (!is_on) status = SIGKILL;
  }
  end_everybody();
  _exit(code_of(status));
}

// Runs before main of whatever program this is linked into.
__attribute__((constructor)) void keeper_entry(int argc, char** argv) {
  if (argc < 4 || strcmp(argv[1], kKeepArgument) != 0) return;
  const pid_t server = static_cast<pid_t>(strtol(argv[2], nullptr, 10)), outer = getpid();
  const int server_end = open_process(server), outer_end = open_process(outer);
  if (getppid() != server) _exit(kCannotStart);  // it is gone already
  const pid_t keeper = fork();
  if (keeper < 0) {
    perror("fork");
    _exit(kCannotStart);
  }
  if (keeper == 0) keep(argv + 3, outer, outer_end, server, server_end);
  let_go_of_streams();
  int status = 0;
  while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(code_of(status));
}

}  // namespace

std::vector<std::string> kept(std::vector<std::string> argv) {
  argv.insert(argv.begin(), {"/proc/self/exe", kKeepArgument, std::to_string(getpid())});
  return argv;
}

}  // namespace tandem::envs
