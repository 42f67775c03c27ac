#include "envs/sandbox/spawner_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/isolation.h"
#include "envs/sandbox/quiet_network.h"
#include "envs/sandbox/spec_message.h"

namespace tandem::envs {

const char* const kSpawnerArgument = "--tandem-spawner";
const char* const kBubblewrapSpawnerArgument = "--tandem-bubblewrap-spawner";

namespace {

Status no_process(int error) {
  return Status(
      error == EPERM || error == EINVAL || error == ENOSYS || error == ENOSPC ? Code::kUnfit : Code::kExhausted,
      "new namespaces: " + std::string(strerror(error)));
}

constexpr uint64_t kHandle = CLONE_PIDFD | SIGCHLD;

// What a group's maker does until the spawner is gone: takes a spec with the ends that the sandbox is to have, and
// answers with the new process, whose parent is the spawner. An answer without a descriptor is the error's number.
[[noreturn]] void serve_as_maker(int socket, Isolation& isolation) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "tandem-maker");
  dup2(socket, 3);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  isolation.prepare();
  QuietNetwork network;
  for (;;) {
    auto request = receive(3, kLargestRequest);
    auto spec = decode_spec(request.text);
    const size_t ends = isolation.speaks() ? 4 : 2;
    if (!spec || request.descriptors.size() < ends) _exit(0);
    // One at a time is in the group, and the one before has ended. Where there is a proxy, though, the way to it
    // listens in the network for as long as somebody outside holds it.
    auto flags = isolation.clone_flags() | kHandle | CLONE_PARENT;
    if ((flags & CLONE_NEWNET) && !spec->has_proxy() && network.ready()) flags &= ~uint64_t{CLONE_NEWNET};
    int pidfd = -1;
    spec->memory_is_bounded = true;  // by the group that this maker is in
    const auto process = static_cast<pid_t>(syscall(SYS_clone, flags, nullptr, &pidfd, nullptr, nullptr));
    if (process == 0) {
      // Were it still open while this process waits for the spawner's word, the spawner would wait for a maker that has
      // been killed meanwhile.
      close(3);
      const auto at = [&](size_t i) { return i < ends ? request.descriptors[i].get() : -1; };
      const int there = request.descriptors.size() > ends ? request.descriptors[ends].get() : -1;
      isolation.begin(*spec, {at(0), at(1), at(2), at(3), there});
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
  SpawnerProcess(int socket, IsolatedBy by, std::string label) : socket_(socket), by_(by), label_(std::move(label)) {}

  [[noreturn]] void run() {
    prctl(PR_SET_NAME, "tandem-spawner");
    signal(SIGINT, SIG_IGN);  // a Ctrl-C is for our maker, which closes the socket when it ends
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    if (geteuid() == 0)
      setgroups(0, nullptr);  // groups of ours would count in sandboxes, though they have no name there
    auto isolation = isolate();
    if (!isolation) {
      tell(isolation.error());
      _exit(1);
    }
    isolation_ = std::move(*isolation);
    cgroups_.emplace(isolation_->processes_beside());
    signal(SIGCHLD, SIG_IGN);  // ended sandboxes are not waited for
    (void)tool_schemas();      // read here once, not in every process that serves a call
    tell("ready");
    for (;;) {
      if (!wait_for_request()) continue;
      const auto request = receive(socket_, kLargestRequest);
      if (request.text.empty()) break;
      if (const Status status = spawn(request); !status) tell(status);
    }
    cgroups_->clear();
    _exit(0);
  }

 private:
  Result<std::unique_ptr<Isolation>> isolate() {
    auto filter = TRY(make_filter());
    if (by_ == IsolatedBy::kBubblewrap) return isolate_by_bubblewrap(std::move(filter), label_);
    return isolate_by_namespaces(std::move(filter));
  }

  // Where nobody listens any more, the end of the socket is seen next.
  void tell(const std::string& text) { (void)send_descriptors(socket_, text, {}).ok(); }
  void tell(const Status& error) { tell(static_cast<char>('A' + static_cast<int>(error.code())) + error.message()); }

  // Control groups are tidied in the meantime. False where there is none yet.
  bool wait_for_request() {
    const Time now = SystemClock().now();
    const auto again = cgroups_->tidy(now);
    pollfd wait = {socket_, POLLIN, 0};
    const auto left = again ? std::chrono::ceil<std::chrono::milliseconds>(*again - now).count() : -1;
    return poll(&wait, 1, static_cast<int>(left)) > 0;
  }

  // What a sandbox and those who make it talk over.
  struct Ends {
    FileDescriptor ours, theirs, our_go, their_go, errors, first;
    InnerEnds inner() const { return {theirs.get(), their_go.get(), errors.get(), first.get()}; }
  };

  static Result<FileDescriptor> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(Status::from_errno("pipe", errno));
    const FileDescriptor reader(ends[0]), writer(ends[1]);
    FileDescriptor both(open(("/proc/self/fd/" + std::to_string(reader.get())).c_str(), O_RDWR | O_CLOEXEC));
    if (!both) return fail(Status::from_errno("pipe", errno));
    return both;
  }

  Result<Ends> make_ends() const {
    int sockets[2], go[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
      return fail(Status::from_errno("socketpair", errno));
    Ends ends{.ours = FileDescriptor(sockets[0]), .theirs = FileDescriptor(sockets[1])};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) != 0)
      return fail(Status::from_errno("socketpair", errno));
    ends.our_go = FileDescriptor(go[0]);
    ends.their_go = FileDescriptor(go[1]);
    if (isolation_->speaks()) {
      ends.errors = FileDescriptor(memfd_create("tandem-errors", MFD_CLOEXEC));
      ends.first = TRY(make_pipe());
      if (!ends.errors) return fail(Status::from_errno("memfd", errno));
    }
    return ends;
  }

  Status spawn(const Received& request) {
    auto spec = TRY(decode_spec(request.text));
    auto ends = TRY(make_ends());
    auto* group = cgroups_->take(spec, SystemClock().now());
    spec.memory_is_bounded = group != nullptr;
    if (group && group->maker && group->system != state_of_system()) group->maker.reset();
    if (group && !group->maker) start_maker(*group);
    std::optional<NewProcess> made;
    if (group && group->maker) {
      made = TRY(make_in(*group, spec, request, ends));
      // A maker that was killed may have made a process just before: that ends without its word, and must not take that
      // of another.
      if (!made) ends = TRY(make_ends());
    }
    const bool inside = made.has_value();
    if (!made) made = TRY(make_here(spec, ends, request.descriptors.empty() ? -1 : request.descriptors[0].get()));
    ends.theirs.reset();
    ends.their_go.reset();
    const FileDescriptor handle(fcntl(made->handle.get(), F_DUPFD_CLOEXEC, 0));
    const auto prepare = [&]() -> Result<NewProcess> {
      auto first = TRY(isolation_->first_process(std::move(*made), ends.first.get()));
      if (group && !inside) CgroupPool::enter(*group, first.process);
      if (group) CgroupPool::give(*group, first.handle.get());
      TRY(isolation_->let_go(first, spec, ends.ours.get(), ends.our_go.get()));
      return first;
    };
    const auto first = prepare();
    if (first) return send_descriptors(socket_, "spawned", {ends.ours.get(), first->handle.get(), ends.errors.get()});
    syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
    const auto words = ends.errors ? written_to(ends.errors) : "";
    return words.empty() ? first.error() : Status::unfit(words);
  }

  Result<NewProcess> make_here(const SandboxSpec& spec, Ends& ends, int there) {
    int pidfd = -1;
    const auto process =
        static_cast<pid_t>(syscall(SYS_clone, isolation_->clone_flags() | kHandle, nullptr, &pidfd, nullptr, nullptr));
    if (process < 0) return fail(no_process(errno));
    if (process == 0) {
      close(socket_);
      ends.ours.reset();
      ends.our_go.reset();
      auto inner = ends.inner();
      inner.there = there;
      isolation_->begin(spec, inner);
    }
    return NewProcess{process, FileDescriptor(pidfd)};
  }

  // None where the maker does not answer; then it is given up.
  Result<std::optional<NewProcess>> make_in(CgroupPool::Group& group, const SandboxSpec& spec, const Received& request,
                                            const Ends& ends) {
    // A maker may have left the host's files behind; where it is root's.
    FileDescriptor bound;
    if (spec.workspace && !isolation_->speaks() && geteuid() == 0) bound = TRY(bound_folder(*spec.workspace));
    const auto inner = ends.inner();
    std::vector<int> descriptors = {inner.socket, inner.go, inner.errors, inner.first};
    if (bound) descriptors.push_back(bound.get());
    for (const auto& there : request.descriptors) descriptors.push_back(there.get());
    const Status sent = send_descriptors(group.maker.get(), request.text, descriptors);
    auto answer = sent ? receive(group.maker.get(), 32) : Received();
    if (answer.text.empty()) {
      group.maker.reset();
      return std::nullopt;
    }
    const int number = atoi(answer.text.c_str());
    if (answer.descriptors.empty()) return fail(no_process(number));
    return std::optional(NewProcess{number, std::move(answer.descriptors[0])});
  }

  // Leaves the group without one where that cannot be.
  void start_maker(CgroupPool::Group& group) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    FileDescriptor ours(ends[0]), theirs(ends[1]);
    const pid_t process = fork();
    if (process == 0) serve_as_maker(theirs.get(), *isolation_);
    if (process < 0) return;
    CgroupPool::enter(group, process);
    group.maker = std::move(ours);
    group.system = state_of_system();
  }

  const int socket_;
  const IsolatedBy by_;
  const std::string label_;
  std::unique_ptr<Isolation> isolation_;
  std::optional<CgroupPool> cgroups_;
};

// Runs before main of whatever program this is linked into, and only where that was started by Spawner::start.
__attribute__((constructor)) void spawner_entry(int argc, char** argv) {
  if (argc != 4) return;
  const bool bubblewrap = strcmp(argv[1], kBubblewrapSpawnerArgument) == 0;
  if (!bubblewrap && strcmp(argv[1], kSpawnerArgument) != 0) return;
  const int socket = atoi(argv[2]);
  struct stat info {};
  if (fstat(socket, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  syscall(SYS_close_range, static_cast<unsigned>(socket) + 1, ~0u, 0u);  // the program, where it came as a file
  SpawnerProcess(socket, bubblewrap ? IsolatedBy::kBubblewrap : IsolatedBy::kNamespaces, argv[3]).run();
}

}  // namespace
}  // namespace tandem::envs
