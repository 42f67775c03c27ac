#include "envs/tools/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

// posix_spawn attributes and actions, released when they go.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

// Where `errors` is none standard error goes where the output goes; where `from` is none the input is that of the spec.
Result<pid_t> spawn(const ProcessSpec& spec, int output, int errors, int from = -1) {
  SpawnSettings settings;
  FileDescriptor input;
  if (from >= 0) {
    posix_spawn_file_actions_adddup2(&settings.actions, from, 0);
  } else if (spec.input.empty()) {
    posix_spawn_file_actions_addopen(&settings.actions, 0, "/dev/null", O_RDONLY, 0);
  } else {
    // A file, which holds as much as there is before anybody reads.
    input = FileDescriptor(memfd_create("tandem-input", MFD_CLOEXEC));
    if (!input) return fail(Status::from_errno("memfd_create", errno));
    TRY(write_all(input.get(), spec.input, "memfd"));
    if (lseek(input.get(), 0, SEEK_SET) != 0) return fail(Status::from_errno("lseek", errno));
    posix_spawn_file_actions_adddup2(&settings.actions, input.get(), 0);
  }
  if (output >= 0) {
    posix_spawn_file_actions_adddup2(&settings.actions, output, 1);
  } else {
    posix_spawn_file_actions_addopen(&settings.actions, 1, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&settings.actions, errors >= 0 ? errors : 1, 2);
  posix_spawn_file_actions_addchdir_np(&settings.actions, spec.directory.c_str());
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv, environment;
  for (const auto& word : spec.argv) argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& setting : spec.environment) environment.push_back(const_cast<char*>(setting.c_str()));
  argv.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, argv[0], &settings.actions, &settings.attributes, argv.data(), environment.data());
  if (error != 0) return fail(Status::from_errno(spec.argv[0], error));
  return pid;
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, BoundedOutput& output) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count > 0) {
      output.append({buffer.data(), static_cast<size_t>(count)});
      // One buffer a round, so that endless output cannot hold off the deadline.
      return true;
    }
    if (count == 0) return false;
    if (errno == EINTR) continue;
    return errno == EAGAIN;
  }
}

// What a program writes to one of its descriptors.
struct Stream {
  FileDescriptor reader;  // none when the stream has ended
  FileDescriptor writer;
  BoundedOutput text;

  static Result<Stream> open(size_t limit) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail(Status::from_errno("pipe", errno));
    Stream stream{FileDescriptor(ends[0]), FileDescriptor(ends[1]), BoundedOutput(limit)};
    // The writer must block in the program: a full pipe is no error there.
    fcntl(stream.writer.get(), F_SETFL, fcntl(stream.writer.get(), F_GETFL) & ~O_NONBLOCK);
    return stream;
  }
  void take() {
    if (!drain(reader.get(), text)) reader.reset();
  }
  void take_rest() {
    for (int rounds = 0; reader && rounds < 32; ++rounds) {
      pollfd wait = {reader.get(), POLLIN, 0};
      if (poll(&wait, 1, 0) <= 0) break;
      take();
    }
  }
};

// While a command runs: ends of processes that have lost their parents and are this one's now, where it takes them in
// (PR_SET_CHILD_SUBREAPER). Unreaped they would use up the processes that there may be. The thread must be its
// process's only one then.
class OrphanReaper {
 public:
  OrphanReaper() {
    int takes_in = 0;
    if (prctl(PR_GET_CHILD_SUBREAPER, &takes_in) != 0 || takes_in == 0) return;
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &before_);
    signals_ = FileDescriptor(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
    is_on_ = true;
  }
  ~OrphanReaper() {
    if (is_on_) sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  int descriptor() const { return signals_.get(); }

  // All that have ended but `command`, whose end is asked for elsewhere.
  void reap(pid_t command) {
    if (!is_on_) return;
    signalfd_siginfo said;
    while (signals_ && read(signals_.get(), &said, sizeof said) > 0) {
    }
    siginfo_t info{};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 && info.si_pid != command) {
      waitpid(info.si_pid, nullptr, WNOHANG);
      info.si_pid = 0;
    }
  }

 private:
  bool is_on_ = false;
  sigset_t before_{};
  FileDescriptor signals_;
};

}  // namespace

Result<ProcessResult> run_process(const ProcessSpec& spec) {
  auto written = TRY(Stream::open(spec.output_limit));
  std::optional<Stream> errors;
  if (spec.errors_apart) errors = TRY(Stream::open(spec.output_limit));
  OrphanReaper orphans;
  const pid_t pid = TRY(spawn(spec, written.writer.get(), errors ? errors->writer.get() : -1));
  written.writer.reset();
  if (errors) errors->writer.reset();
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));

  const SystemClock clock;
  const Time deadline = clock.now() + from_seconds(spec.time_limit_s);
  ProcessResult result;
  for (bool running = true; running;) {
    const double left = to_seconds(deadline - clock.now());
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    std::array<pollfd, 4> waits = {pollfd{process.get(), POLLIN, 0}, pollfd{written.reader.get(), POLLIN, 0},
                                   pollfd{errors ? errors->reader.get() : -1, POLLIN, 0},
                                   pollfd{orphans.descriptor(), POLLIN, 0}};
    // Without a pidfd the state of the process is asked for now and then.
    const double most = process ? left : std::min(left, 0.01);
    poll(waits.data(), waits.size(), static_cast<int>(std::ceil(most * 1000)));
    if (waits[1].revents != 0) written.take();
    if (waits[2].revents != 0) errors->take();
    orphans.reap(pid);
    siginfo_t info{};
    if (waits[0].revents != 0 || !process) {
      if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) {
        running = false;
      }
    }
  }
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  // What the program wrote before it ended is still in the pipe: at most its capacity, since the writers are gone or
  // left on purpose.
  written.take_rest();
  if (errors) errors->take_rest();
  result.exit_code = result.timed_out      ? 124
                     : WIFEXITED(status)   ? WEXITSTATUS(status)
                     : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                           : -1;
  result.truncated = written.text.truncated() || (errors && errors->text.truncated());
  result.output = written.text.text();
  if (errors) result.errors = errors->text.text();
  return result;
}

Result<int> start_process(const ProcessSpec& spec) { return TRY(spawn(spec, -1, -1)); }

Result<int> start_process(const ProcessSpec& spec, int socket, int errors) {
  return TRY(spawn(spec, socket, errors, socket));
}

std::string find_program(std::string_view name) {
  for (const char* folder : {"/usr/local/bin/", "/usr/bin/", "/bin/"}) {
    const auto path = std::string(folder).append(name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

}  // namespace tandem::envs
