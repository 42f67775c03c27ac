#include "envs/sandbox/init.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/pause.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/root_contents.h"
#include "envs/sandbox/serve_request.h"
#include "envs/tools/functions.h"
#include "envs/tools/tool.h"

namespace tandem::envs {
namespace {

constexpr auto kCancelGrace = std::chrono::seconds(2);       // in which a cancelled call can finish what it writes
constexpr int kMostWaits = 20'000, kWaitMicroseconds = 100;  // of processes that are about to end

Time init_soon() { return SystemClock().now() + std::chrono::seconds(60); }

// In the process that serves a call: ends the program that a tool waits for, with its group, so that the tool comes
// back. A signal handler: what it calls may be called there.
void end_children(int) {
  const int error = errno;
  const int file = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  char text[4096];
  const ssize_t size = file < 0 ? 0 : read(file, text, sizeof text);
  if (file >= 0) close(file);
  pid_t child = 0;
  for (ssize_t i = 0; i < size; ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      child = child * 10 + (text[i] - '0');
      continue;
    }
    if (child > 1) {
      kill(-child, SIGKILL);
      kill(child, SIGKILL);
    }
    child = 0;
  }
  errno = error;
}

// Programs that would try again and again to reach somebody try once where nobody can be reached.
constexpr const char* kWithoutNetwork[] = {"PIP_RETRIES=0",
                                           "PIP_DISABLE_PIP_VERSION_CHECK=1",
                                           "npm_config_fetch_retries=0",
                                           "npm_config_update_notifier=false",
                                           "npm_config_audit=false",
                                           "npm_config_fund=false"};

std::vector<std::string> environment_with(const ServedSandbox& served) {
  ToolContext usual;
  usual.root = "/workspace";
  auto environment = clean_environment(usual);
  // The leak detector of AddressSanitizer traces its own process, which nothing here may; it ends the program then.
  std::vector<std::string> settings = {"HOME=" + kHome, "ASAN_OPTIONS=detect_leaks=0", "LSAN_OPTIONS=detect_leaks=0",
                                       // What `pip install --user` and `npm install --global` bring is found.
                                       "PATH=" + kHome + "/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"};
  if (!served.has_network) settings.insert(settings.end(), std::begin(kWithoutNetwork), std::end(kWithoutNetwork));
  settings.insert(settings.end(), served.settings.begin(), served.settings.end());
  for (const auto& setting : settings) {
    const auto name = setting.substr(0, setting.find('=') + 1);
    std::erase_if(environment, [&](const std::string& other) { return other.starts_with(name); });
    environment.push_back(setting);
  }
  return environment;
}

struct Worker {
  uint64_t id = 0;
  RequestKind kind = RequestKind::kCall;
  pid_t process = -1;
  FileDescriptor results;
  std::string reply;
  std::optional<Time> end_at = {};  // of one that was cancelled: when it is killed if it still runs
};

class Server {
 public:
  Server(int socket, RequestContext context) : socket_(socket), context_(std::move(context)) {
    // Blocked signals are kept for the descriptor, although the first process has no handler.
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, nullptr);
    ended_ = FileDescriptor(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  [[noreturn]] void run() {
    for (;;) {
      std::vector<pollfd> waits = {{socket_, POLLIN, 0}};
      waits.reserve(workers_.size() + 2);
      for (const auto& worker : workers_) waits.push_back({worker.results.get(), POLLIN, 0});
      waits.push_back({ended_.get(), POLLIN, 0});
      // Wakes to reap what background commands left, also now and then.
      poll(waits.data(), waits.size(), end_cancelled() ? 100 : 1000);
      signalfd_siginfo said;
      while (ended_ && read(ended_.get(), &said, sizeof said) > 0) {
      }
      for (size_t i = workers_.size(); i-- > 0;) {
        if (waits[i + 1].revents != 0 && !gather(workers_[i])) workers_.erase(workers_.begin() + static_cast<long>(i));
      }
      if (waits[0].revents != 0) accept();
      (void)reap();
    }
  }

 private:
  void accept() {
    // The other side is gone, or not to be understood: the sandbox ends with its first process.
    const auto frame = receive_frame(socket_, init_soon());
    if (!frame) _exit(0);
    FieldReader fields(*frame);
    const auto id = fields.number(), number = fields.number();
    if (!id || !number) _exit(1);
    const auto kind = static_cast<RequestKind>(*number);
    if (kind == RequestKind::kCancel) return cancel(*id);
    if (kind == RequestKind::kFreeze || kind == RequestKind::kThaw) {
      freeze(kind == RequestKind::kFreeze);
      return send(*id, kWorked);
    }
    if (kind == RequestKind::kSeal) return seal(*id);
    FileDescriptor descriptor;
    if (kind == RequestKind::kStartServer || kind == RequestKind::kCollectChanges ||
        kind == RequestKind::kFolderChanges) {
      auto received = receive(socket_, 1);
      if (received.descriptors.size() != 1) _exit(1);
      descriptor = std::move(received.descriptors[0]);
    }
    const bool collects =
        kind == RequestKind::kCollect || kind == RequestKind::kCollectChanges || kind == RequestKind::kFolderChanges;
    if (collects && only_looks()) {
      kill(-1, SIGKILL);  // everything but this process
      (void)alone_soon([] { return true; });
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return refuse(*id, kind, "too many calls at once");
    if (kind == RequestKind::kSnapshot) pause_.begin();
    FileDescriptor reader(ends[0]), writer(ends[1]);
    pid_t process = -1;
    for (int attempt = 0; attempt < 50 && process < 0; ++attempt) {
      process = fork();
      if (process < 0) {
        (void)reap();
        usleep(2000);  // processes that were killed take a moment to go
      }
    }
    if (process == 0) {
      close(socket_);
      reader.reset();
      for (auto& worker : workers_) worker.results.reset();
      prctl(PR_SET_CHILD_SUBREAPER, 1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      struct sigaction action {};
      action.sa_handler = end_children;
      action.sa_flags = SA_RESTART;
      sigaction(SIGTERM, &action, nullptr);
      const auto reply = serve_request(kind, fields, session_, descriptor.get(), context_);
      const auto written = write_all(writer.get(), reply, "reply");
      _exit(written ? 0 : 1);
    }
    if (process < 0) {
      if (kind == RequestKind::kSnapshot) pause_.end();
      return refuse(*id, kind, "too many processes are running; end some first");
    }
    fcntl(reader.get(), F_SETFL, O_NONBLOCK);
    workers_.push_back({*id, kind, process, std::move(reader), ""});
  }

  // Who looks in does not keep files from being collected in peace.
  bool only_looks() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.kind == RequestKind::kExec; });
  }

  // Whether there is no other process: each is a descendant of this one, and who loses its parent becomes its child.
  bool reap() {
    pid_t ended = -1;
    while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) std::erase(leaving_, ended);
    return ended < 0 && errno == ECHILD;
  }

  // Whether there is no other process, asked for a moment while `may_end` holds: a killed process still runs, and
  // writes, until its system call ends or its core hears of the signal. One that waits for a device may take longer.
  template <typename MayEnd>
  bool alone_soon(MayEnd may_end) {
    bool alone = reap();
    for (int attempt = 0; attempt < kMostWaits && !alone && may_end(); ++attempt) {
      usleep(kWaitMicroseconds);
      alone = reap();
    }
    return alone;
  }

  void seal(uint64_t id) {
    const bool alone = alone_soon([this] { return !leaving_.empty(); });
    std::string reply;
    put_text(reply, alone ? "" : "something runs in the sandbox");
    if (alone) put_session(reply, session_);
    send(id, reply);
    if (alone) _exit(0);
  }

  void freeze(bool frozen) {
    if (frozen == frozen_) return;
    frozen_ = frozen;
    frozen ? pause_.begin() : pause_.end();
  }

  // A tool that has lost its program ends by itself, its files whole; one that goes on is killed.
  void cancel(uint64_t id) {
    for (auto& worker : workers_) {
      if (worker.id != id || worker.end_at) continue;
      worker.end_at = SystemClock().now() + kCancelGrace;
    }
  }

  // Whether there are any. They are asked over and over: a tool may be just about to start its program, or another one.
  bool end_cancelled() {
    bool any = false;
    for (const auto& worker : workers_) {
      if (!worker.end_at) continue;
      any = true;
      kill(worker.process, SystemClock().now() < *worker.end_at ? SIGTERM : SIGKILL);
    }
    return any;
  }

  // Takes what a worker has written; false when it has ended and its reply is sent.
  bool gather(Worker& worker) {
    char buffer[65536];
    const ssize_t count = read(worker.results.get(), buffer, sizeof buffer);
    if (count > 0) {
      worker.reply.append(buffer, static_cast<size_t>(count));
      return true;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (kill(worker.process, 0) == 0) leaving_.push_back(worker.process);  // else it was reaped before
    if (worker.kind == RequestKind::kSnapshot) pause_.end();
    const bool has_session = worker.kind == RequestKind::kCall || worker.kind == RequestKind::kRestore;
    send(worker.id, has_session ? take_session(worker.reply) : worker.reply);
    return false;
  }

  // The rest of a reply that begins with the session; empty where the process that served it was killed.
  std::string take_session(const std::string& reply) {
    FieldReader fields(reply);
    const auto read = [&]() -> Result<std::string> {
      auto session = TRY(fields.number()) == 1 ? TRY(fields.session()) : session_;
      auto outcome = TRY(fields.text());
      session_ = std::move(session);
      return outcome;
    };
    auto outcome = read();
    return outcome ? std::move(*outcome) : "";
  }

  void refuse(uint64_t id, RequestKind kind, const char* why) {
    const bool reads_outcome = kind != RequestKind::kExec;
    send(id, reads_outcome ? dump_json(to_json(ToolOutcome::refused(why))) : "");
  }

  void send(uint64_t id, const std::string& reply) {
    std::string frame;
    put_number(frame, id);
    frame += reply;
    if (!send_frame(socket_, frame, init_soon())) _exit(0);
  }

  int socket_;
  const RequestContext context_;
  FileDescriptor ended_;  // readable when a child has ended
  std::vector<Worker> workers_;
  std::vector<pid_t> leaving_;  // workers that have said all and are on their way out
  Session session_;
  Pause pause_;
  bool frozen_ = false;  // for who asked for it; snapshots pause beside that
};

}  // namespace

void serve_sandbox(int socket, const ServedSandbox& served) {
  // No process of the sandbox may look into this one or its workers.
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_NAME, "tandem-init");
  // The kernel keeps signals of the sandbox from its first process as long as that has no handlers.
  for (int number = 1; number < 32; ++number) signal(number, SIG_DFL);
  Server(socket, {environment_with(served), served.links, served.has_network}).run();
}

}  // namespace tandem::envs
