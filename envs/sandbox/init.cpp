#include "envs/sandbox/init.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/look.h"
#include "envs/sandbox/sandbox.h"
#include "envs/sandbox/snapshot.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"
#include "envs/tools/process.h"
#include "envs/tools/tool.h"

namespace tandem::envs {
namespace {

const char* const kRoot = "/workspace";
const char* const kTemporary = "/tmp";

constexpr auto kCancelGrace = std::chrono::seconds(2);  // in which a cancelled call can finish what it writes

Time soon() { return SystemClock().now() + std::chrono::seconds(60); }

// Ends every process that this one's command left, whatever sessions they moved to: as a subreaper it inherits them.
void end_descendants() {
  const std::string list = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  for (int round = 0; round < 10'000; ++round) {
    FileDescriptor file(open(list.c_str(), O_RDONLY | O_CLOEXEC));
    char text[4096];
    const ssize_t size = file ? read(file.get(), text, sizeof text) : 0;
    if (size <= 0) return;
    std::istringstream words(std::string(text, static_cast<size_t>(size)));
    for (pid_t child; words >> child;) kill(child, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

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

std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  ToolContext usual;
  usual.root = kRoot;
  auto environment = clean_environment(usual);
  for (const auto& setting : settings) {
    const auto name = setting.substr(0, setting.find('=') + 1);
    std::erase_if(environment, [&](const std::string& other) { return other.starts_with(name); });
    environment.push_back(setting);
  }
  return environment;
}

// Such a reply begins with what became of the session: that stays in the first process, the rest goes on.
std::string reply_with(const Session& before, const Session& after, const std::string& rest) {
  std::string reply;
  put_number(reply, after != before ? 1 : 0);
  if (after != before) put_session(reply, after);
  put_text(reply, rest);
  return reply;
}

std::string serve_call(FieldReader& fields, Session session, const std::vector<std::string>& environment) {
  const Session before = session;
  const auto serve = [&]() -> Result<ToolOutcome> {
    const auto name = TRY(fields.text());
    const auto arguments = TRY(fields.text());
    ToolContext context;
    context.root = kRoot;
    context.shown_root = kRoot;
    context.environment = environment;
    context.session = &session;
    context.output_limit = TRY(fields.number());
    context.time_limit_s = TRY(fields.seconds());
    const auto tools = TRY(fields.text());
    for (const auto tool : split(tools, ',')) {
      if (!tool.empty()) context.tools.emplace_back(tool);
    }
    const auto json = TRY(parse_json(arguments));
    auto outcome = run_tool(context, name, json);
    const bool background =
        json.is_object() && json.contains("is_background") && json.at("is_background") == Json(true);
    if (!background) end_descendants();
    return outcome;
  };
  const auto outcome = serve();
  return reply_with(before, session,
                    dump_json(to_json(outcome ? *outcome : ToolOutcome::refused(outcome.error().message()))));
}

std::string serve_snapshot(const Session& session) {
  std::string reply;
  const auto workspace = pack_tree(kRoot);
  const auto temporary = workspace ? pack_tree(kTemporary, kLargestTree - workspace->size()) : workspace;
  if (!temporary) {
    put_text(reply, temporary.error().message());
    return reply;
  }
  put_text(reply, "");
  put_text(reply, *workspace);
  put_text(reply, *temporary);
  put_session(reply, session);
  return reply;
}

std::string serve_restore(FieldReader& fields, const Session& before) {
  Session session = before;
  const auto restore = [&]() -> Status {
    TRY(unpack_tree(kRoot, TRY(fields.text())));
    TRY(unpack_tree(kTemporary, TRY(fields.text())));
    session = TRY(fields.session());
    return {};
  };
  const Status status = restore();
  return reply_with(before, session, status ? kWorked : status.message());
}

std::string serve_begin(FieldReader& fields) {
  const auto begin = [&]() -> Status {
    return unpack_tree(kRoot, TRY(read_file(TRY(fields.text()), kLargestTree * 2)));
  };
  const Status status = begin();
  return status ? kWorked : status.message();
}

template <typename Answer>
std::string serve_sources(std::string_view question, const Answer& answer) {
  std::string reply;
  const Result<std::string> text = answer(question);
  put_text(reply, text ? "" : text.error().message());
  if (text) put_text(reply, *text);
  return reply;
}

Result<std::string> source_changes(std::string_view question) {
  return encode(TRY(changes_of_sources(kRoot, TRY(decode_known_sources(question)))));
}

Result<std::string> source_lines(std::string_view question) {
  std::string texts;
  for (const auto& text : read_lines(kRoot, TRY(decode_source_lines(question)))) put_text(texts, text);
  return texts;
}

std::string serve_start(FieldReader& fields, int socket, const std::vector<std::string>& environment) {
  const auto start = [&]() -> Status {
    const auto name = TRY(fields.text());
    ProcessSpec spec;
    const auto bash = find_program("bash");
    spec.argv = {bash.empty() ? "/bin/sh" : bash, "-c", TRY(fields.text())};
    spec.directory = kRoot;
    spec.environment = environment;
    const auto log = server_log(name);
    const FileDescriptor errors(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!errors) return Status::from_errno(log, errno);
    TRY(start_process(spec, socket, errors.get()));
    return {};
  };
  const Status status = start();
  return status ? kWorked : status.message();
}

std::string serve(RequestKind kind, FieldReader& fields, const Session& session, int descriptor,
                  const std::vector<std::string>& environment) {
  std::string reply;
  switch (kind) {
    case RequestKind::kCall:
      return serve_call(fields, session, environment);
    case RequestKind::kPut: {
      const auto files = fields.files();
      const Status status = files ? put_files(kRoot, *files) : files.error();
      return status ? kWorked : status.message();
    }
    case RequestKind::kBegin:
      return serve_begin(fields);
    case RequestKind::kSnapshot:
      return serve_snapshot(session);
    case RequestKind::kRestore:
      return serve_restore(fields, session);
    case RequestKind::kCollect: {
      const auto collected = collect_files(kRoot);
      put_number(reply, collected.complete ? 1 : 0);
      put_files(reply, collected.files);
      put_number(reply, collected.programs.size());
      for (const auto& path : collected.programs) put_text(reply, path);
      return reply;
    }
    case RequestKind::kSourceChanges:
      return serve_sources(fields.rest(), source_changes);
    case RequestKind::kSourceLines:
      return serve_sources(fields.rest(), source_lines);
    case RequestKind::kFingerprint:
      put_number(reply, fingerprint(kRoot));
      return reply;
    case RequestKind::kStartServer:
      return serve_start(fields, descriptor, environment);
    case RequestKind::kLook: {
      auto looked = serve_look(fields, kRoot, session, environment);
      end_descendants();
      return looked;
    }
    case RequestKind::kCancel:
      break;  // the first process itself sees to it
  }
  return "";
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
  Server(int socket, std::vector<std::string> environment) : socket_(socket), environment_(std::move(environment)) {}

  [[noreturn]] void run() {
    for (;;) {
      std::vector<pollfd> waits = {{socket_, POLLIN, 0}};
      for (const auto& worker : workers_) waits.push_back({worker.results.get(), POLLIN, 0});
      // Wakes now and then to reap what background commands left.
      poll(waits.data(), waits.size(), end_cancelled() ? 100 : 1000);
      for (size_t i = workers_.size(); i-- > 0;) {
        if (waits[i + 1].revents != 0 && !gather(workers_[i])) workers_.erase(workers_.begin() + static_cast<long>(i));
      }
      if (waits[0].revents != 0) accept();
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
  }

 private:
  void accept() {
    // The other side is gone, or not to be understood: the sandbox ends with its first process.
    const auto frame = receive_frame(socket_, soon());
    if (!frame) _exit(0);
    FieldReader fields(*frame);
    const auto id = fields.number(), kind = fields.number();
    if (!id || !kind) _exit(1);
    if (*kind == static_cast<uint64_t>(RequestKind::kCancel)) return cancel(*id);
    FileDescriptor descriptor;
    if (*kind == static_cast<uint64_t>(RequestKind::kStartServer)) {
      auto received = receive(socket_, 1);
      if (received.descriptors.size() != 1) _exit(1);
      descriptor = std::move(received.descriptors[0]);
    }
    if (*kind == static_cast<uint64_t>(RequestKind::kCollect) && only_looks()) {
      kill(-1, SIGKILL);  // everything but this process
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return refuse(*id, *kind, "too many calls at once");
    FileDescriptor reader(ends[0]), writer(ends[1]);
    pid_t process = -1;
    for (int attempt = 0; attempt < 50 && process < 0; ++attempt) {
      process = fork();
      if (process < 0) {
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
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
      const auto reply = serve(static_cast<RequestKind>(*kind), fields, session_, descriptor.get(), environment_);
      const auto written = write_all(writer.get(), reply, "reply");
      _exit(written ? 0 : 1);
    }
    if (process < 0) return refuse(*id, *kind, "too many processes are running; end some first");
    fcntl(reader.get(), F_SETFL, O_NONBLOCK);
    workers_.push_back({*id, static_cast<RequestKind>(*kind), process, std::move(reader), ""});
  }

  // Who looks in does not keep files from being collected in peace.
  bool only_looks() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.kind == RequestKind::kLook; });
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

  void refuse(uint64_t id, uint64_t kind, const char* why) {
    const bool reads_outcome = kind != static_cast<uint64_t>(RequestKind::kLook);
    send(id, reads_outcome ? dump_json(to_json(ToolOutcome::refused(why))) : "");
  }

  void send(uint64_t id, const std::string& reply) {
    std::string frame;
    put_number(frame, id);
    frame += reply;
    if (!send_frame(socket_, frame, soon())) _exit(0);
  }

  int socket_;
  const std::vector<std::string> environment_;  // of commands
  std::vector<Worker> workers_;
  Session session_;
};

}  // namespace

std::string server_log(std::string_view name) { return std::string("/tmp/").append(name).append(".mcp.log"); }

void serve_sandbox(int socket, const std::vector<std::string>& settings) {
  // No process of the sandbox may look into this one or its workers.
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_NAME, "tandem-init");
  // The kernel keeps signals of the sandbox from its first process as long as that has no handlers.
  for (int number = 1; number < 32; ++number) signal(number, SIG_DFL);
  Server(socket, environment_with(settings)).run();
}

}  // namespace tandem::envs
