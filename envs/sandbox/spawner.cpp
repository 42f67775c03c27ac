#include "envs/sandbox/spawner.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/first_process.h"
#include "envs/sandbox/process_handle.h"
#include "envs/sandbox/program/program.h"
#include "envs/sandbox/spec_message.h"

extern char** environ;

namespace tandem::envs {
namespace {

constexpr size_t kLargestRequest = 65536;
constexpr const char* kHiddenArgument = "--tandem-spawner";

Status write_map(pid_t process, const char* file, const std::string& text) {
  const auto path = "/proc/" + std::to_string(process) + "/" + file;
  FileDescriptor map(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!map) return Status::from_errno(path, errno);
  return write_all(map.get(), text, path);
}

// In the new process: everything up to serving calls.
[[noreturn]] void become_sandbox(const SandboxSpec& spec, const std::string& filter, int socket, int go) {
  prctl(PR_SET_NAME, "tandem-init");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_DFL);
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(1);  // the spawner could not write the maps, and says so itself
  dup2(socket, 3);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  confine_and_serve(3, [&]() -> Result<FirstProcess> {
    TRY(become_user(kInnerId, kInnerId));  // the capabilities of the new user namespace are needed for the root
    if (sethostname("tandem", 6) != 0) return fail(Status::from_errno("host name", errno));
    TRY(build_root(spec));
    return FirstProcess{spec, filter};
  });
}

constexpr uint64_t kNamespaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
                                 CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_PIDFD | SIGCHLD;

struct NewProcess {
  pid_t process = -1;
  FileDescriptor handle;  // a pidfd
};

Status no_namespaces(int error) {
  return Status(
      error == EPERM || error == EINVAL || error == ENOSYS || error == ENOSPC ? Code::kUnfit : Code::kExhausted,
      "new namespaces: " + std::string(strerror(error)));
}

// What a group's maker does until the spawner is gone: takes a spec with the ends that the sandbox is to have, and
// answers with the first process, whose parent is the spawner. An answer without a descriptor is the error's number.
[[noreturn]] void serve_as_maker(int socket, const std::string& filter) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "tandem-maker");
  dup2(socket, 3);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  for (;;) {
    auto request = receive(3, kLargestRequest);
    const auto spec = decode_spec(request.text);
    if (!spec || request.descriptors.size() != 2) _exit(0);
    int pidfd = -1;
    const auto process =
        static_cast<pid_t>(syscall(SYS_clone, kNamespaces | CLONE_PARENT, nullptr, &pidfd, nullptr, nullptr));
    if (process == 0) {
      // Were it still open while this process waits for the spawner's word, the spawner would wait for a maker that has
      // been killed meanwhile.
      close(3);
      become_sandbox(*spec, filter, request.descriptors[0].get(), request.descriptors[1].get());
    }
    const FileDescriptor handle(process > 0 ? pidfd : -1);
    const int error = errno;
    const Status told = process > 0 ? send_descriptors(3, std::to_string(process), {handle.get()})
                                    : send_descriptors(3, std::to_string(error), {});
    if (!told) _exit(0);
  }
}

class SpawnerProcess {
 public:
  explicit SpawnerProcess(int socket) : socket_(socket) {}

  [[noreturn]] void run() {
    prctl(PR_SET_NAME, "tandem-spawner");
    signal(SIGCHLD, SIG_IGN);  // ended sandboxes are not waited for
    signal(SIGINT, SIG_IGN);   // a Ctrl-C is for our maker, which closes the socket when it ends
    signal(SIGPIPE, SIG_IGN);
    if (geteuid() == 0)
      setgroups(0, nullptr);  // groups of ours would count in sandboxes, though they have no name there
    auto filter = make_filter();
    if (!filter) {
      tell(static_cast<char>('A' + static_cast<int>(Code::kUnfit)) + filter.error().message());
      _exit(1);
    }
    filter_ = std::move(*filter);
    (void)tool_schemas();  // read here once, not in every process that serves a call
    tell("ready");
    std::string bytes(kLargestRequest, '\0');
    for (;;) {
      if (!wait_for_request()) continue;
      const ssize_t size = recv(socket_, bytes.data(), bytes.size(), 0);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) break;
      if (const Status status = spawn(std::string_view(bytes).substr(0, static_cast<size_t>(size))); !status) {
        tell(static_cast<char>('A' + static_cast<int>(status.code())) + status.message());
      }
    }
    cgroups_.clear();
    _exit(0);
  }

 private:
  // Where nobody listens any more, the end of the socket is seen next.
  void tell(const std::string& text) { (void)send_descriptors(socket_, text, {}).ok(); }

  // Control groups are tidied in the meantime. False where there is none yet.
  bool wait_for_request() {
    const Time now = SystemClock().now();
    const auto again = cgroups_.tidy(now);
    pollfd wait = {socket_, POLLIN, 0};
    const auto left = again ? std::chrono::ceil<std::chrono::milliseconds>(*again - now).count() : -1;
    return poll(&wait, 1, static_cast<int>(left)) > 0;
  }

  // What a sandbox and those who make it talk over.
  struct Ends {
    FileDescriptor ours, theirs, go_read, go_write;
  };

  static Result<Ends> make_ends() {
    int sockets[2], go[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
      return fail(Status::from_errno("socketpair", errno));
    Ends ends{FileDescriptor(sockets[0]), FileDescriptor(sockets[1]), FileDescriptor(), FileDescriptor()};
    if (pipe2(go, O_CLOEXEC) != 0) return fail(Status::from_errno("pipe", errno));
    ends.go_read = FileDescriptor(go[0]);
    ends.go_write = FileDescriptor(go[1]);
    return ends;
  }

  Status spawn(std::string_view request) {
    const auto spec = TRY(decode_spec(request));
    auto ends = TRY(make_ends());
    auto* group = cgroups_.take(spec, SystemClock().now());
    if (group && !group->maker) start_maker(*group);
    std::optional<NewProcess> first;
    if (group && group->maker) {
      first = TRY(make_in(*group, request, ends));
      // A maker that was killed may have made a process just before: that ends without its word, and must not take that
      // of another.
      if (!first) ends = TRY(make_ends());
    }
    const bool inside = first.has_value();
    if (!first) first = TRY(make_here(spec, ends));
    const pid_t process = first->process;
    const auto prepare = [&]() -> Status {
      if (group && !inside) CgroupPool::enter(*group, process);
      if (group) CgroupPool::give(*group, first->handle.get());
      unsigned user = geteuid(), group = getegid();
      if (user == 0) {
        user = group = kNobody;
        struct stat info {};
        if (spec.workspace && stat(spec.workspace->c_str(), &info) == 0) {
          user = info.st_uid;
          group = info.st_gid;
        }
      }
      TRY(write_map(process, "setgroups", "deny"));
      TRY(write_map(process, "uid_map", std::to_string(kInnerId) + " " + std::to_string(user) + " 1"));
      TRY(write_map(process, "gid_map", std::to_string(kInnerId) + " " + std::to_string(group) + " 1"));
      return write_all(ends.go_write.get(), "g", "sandbox");
    };
    if (const Status status = prepare(); !status) {
      // What is missing then is the process, and nothing of the machine.
      if (has_ended(first->handle)) return Status::unavailable("the first process was killed while it was made");
      kill(process, SIGKILL);
      return status;
    }
    return send_descriptors(socket_, "spawned", {ends.ours.get(), first->handle.get()});
  }

  Result<NewProcess> make_here(const SandboxSpec& spec, Ends& ends) {
    int pidfd = -1;
    const auto process = static_cast<pid_t>(syscall(SYS_clone, kNamespaces, nullptr, &pidfd, nullptr, nullptr));
    if (process < 0) return fail(no_namespaces(errno));
    if (process == 0) {
      close(socket_);
      ends.ours.reset();
      ends.go_write.reset();
      become_sandbox(spec, filter_, ends.theirs.get(), ends.go_read.get());
    }
    return NewProcess{process, FileDescriptor(pidfd)};
  }

  // None where the maker does not answer; then it is given up.
  Result<std::optional<NewProcess>> make_in(CgroupPool::Group& group, std::string_view request, const Ends& ends) {
    const Status sent = send_descriptors(group.maker.get(), request, {ends.theirs.get(), ends.go_read.get()});
    auto answer = sent ? receive(group.maker.get(), 32) : Received();
    if (answer.text.empty()) {
      group.maker.reset();
      return std::nullopt;
    }
    const int number = atoi(answer.text.c_str());
    if (answer.descriptors.empty()) return fail(no_namespaces(number));
    return std::optional(NewProcess{number, std::move(answer.descriptors[0])});
  }

  // Leaves the group without one where that cannot be.
  void start_maker(CgroupPool::Group& group) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    FileDescriptor ours(ends[0]), theirs(ends[1]);
    const pid_t process = fork();
    if (process == 0) serve_as_maker(theirs.get(), filter_);
    if (process < 0) return;
    CgroupPool::enter(group, process);
    group.maker = std::move(ours);
  }

  int socket_;
  std::string filter_;
  CgroupPool cgroups_;
};

// Runs before main of whatever program this is linked into, and only where that was started by Spawner::start.
__attribute__((constructor)) void spawner_entry(int argc, char** argv) {
  if (argc != 4 || strcmp(argv[1], kHiddenArgument) != 0) return;
  const int socket = atoi(argv[2]);
  struct stat info {};
  if (fstat(socket, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  syscall(SYS_close_range, static_cast<unsigned>(socket) + 1, ~0u, 0u);  // the program, where it came as a file
  SpawnerProcess(socket).run();
}

// The static program as a file that nobody can change; invalid where there is none, or the kernel has no such files.
FileDescriptor program_file() {
  const auto program = sandbox_program();
  if (program.empty()) return {};
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC of Linux 6.3
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor file(memfd_create("tandem-sandbox", kFlags | kExecutable));
  if (!file) file = FileDescriptor(memfd_create("tandem-sandbox", kFlags));
  if (!file || !write_all(file.get(), program, "sandbox program")) return {};
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) return {};
  return file;
}

// One message of the spawner. An error means that there will be no other.
Result<Received> receive_answer(int socket) {
  pollfd wait = {socket, POLLIN, 0};
  if (poll(&wait, 1, 20'000) <= 0) return fail(Status::deadline("the sandbox spawner does not answer"));
  auto received = receive(socket, 1024);
  if (received.text.empty()) return fail(Status::unavailable("the sandbox spawner is gone"));
  return received;
}

// What came with the message; its error where the text is not the expected one.
Result<std::vector<FileDescriptor>> descriptors_of(Received received, std::string_view expected) {
  const std::string_view answer = received.text;
  if (answer == expected) return std::move(received.descriptors);
  // The first letter is the code of the error.
  const auto code = static_cast<Code>(answer[0] - 'A');
  return fail(Status(code, "no sandbox can be made here: " + std::string(answer.substr(1)))
                  .hint("`tandem doctor` says what is missing"));
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::start(std::string label) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  const FileDescriptor program = program_file();
  std::string name = "tandem-spawner", hidden = kHiddenArgument, number = "3";
  char* argv[] = {name.data(), hidden.data(), number.data(), label.data(), nullptr};
  pid_t process = -1;
  int error = ENOENT;
  // The spawner must not keep the host's descriptors: all but its socket are closed in it, and then the program that it
  // is. Where files in memory may not be run it is this program itself.
  for (const bool own : {false, true}) {
    if (error == 0 || (!own && !program)) continue;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Neither may be overwritten by the other's new number.
    const int socket = fcntl(theirs.get(), F_DUPFD_CLOEXEC, 10),
              file = own ? -1 : fcntl(program.get(), F_DUPFD_CLOEXEC, 10);
    FileDescriptor high_socket(socket), high_file(file);
    posix_spawn_file_actions_adddup2(&actions, socket, 3);
    if (!own) posix_spawn_file_actions_adddup2(&actions, file, 4);
    posix_spawn_file_actions_addclosefrom_np(&actions, own ? 4 : 5);
    error = posix_spawn(&process, own ? "/proc/self/exe" : "/proc/self/fd/4", &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  if (error != 0) return fail(Status::from_errno("starting the sandbox spawner", error));
  theirs.reset();
  std::unique_ptr<Spawner> spawner(new Spawner(std::move(ours), process));
  TRY(descriptors_of(TRY(receive_answer(spawner->socket_.get())), "ready"));
  return spawner;
}

Spawner::~Spawner() { reap(); }

void Spawner::reap() {
  socket_.reset();
  if (process_ < 0) return;
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

Result<SpawnedSandbox> Spawner::spawn(const SandboxSpec& spec) {
  const auto request = encode(spec);
  if (request.size() > kLargestRequest)
    return fail(Status::invalid("the links of a sandbox take more than " + std::to_string(kLargestRequest) + " bytes"));
  std::lock_guard lock(mutex_);
  if (lost_) return fail(Status::unavailable("the sandbox spawner is gone"));
  const Status sent = send_descriptors(socket_.get(), request, {});
  auto answer = sent ? receive_answer(socket_.get()) : fail(sent);
  if (!answer) {
    // Gone before the next one starts, which sweeps what this one has left.
    lost_ = true;
    if (process_ > 0) kill(process_, SIGKILL);
    reap();
    return fail(std::move(answer).error());
  }
  auto descriptors = TRY(descriptors_of(std::move(*answer), "spawned"));
  if (descriptors.size() != 2) return fail(Status::internal("the sandbox spawner sent no descriptors"));
  return SpawnedSandbox{std::move(descriptors[0]), std::move(descriptors[1])};
}

}  // namespace tandem::envs
