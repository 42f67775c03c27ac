// Namespaces that the new process is cloned into; it builds its root by itself.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/first_process.h"
#include "envs/sandbox/isolation.h"
#include "envs/sandbox/process_handle.h"

namespace tandem::envs {
namespace {

Status write_map(pid_t process, const char* file, const std::string& text) {
  const auto path = "/proc/" + std::to_string(process) + "/" + file;
  FileDescriptor map(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!map) return Status::from_errno(path, errno);
  return write_all(map.get(), text, path);
}

// The socket becomes 3, and nothing else stays open but `there`, where it is one.
FileDescriptor keep_only(int socket, int there) {
  constexpr int kBeyond = 256;
  const FileDescriptor high(there < 0 ? -1 : fcntl(there, F_DUPFD_CLOEXEC, kBeyond));
  dup2(socket, 3);
  FileDescriptor kept(high ? dup3(high.get(), 4, O_CLOEXEC) : -1);
  syscall(SYS_close_range, kept ? 5u : 4u, ~0u, 0u);
  return kept;
}

class NamespaceIsolation final : public Isolation {
 public:
  explicit NamespaceIsolation(std::string filter) : filter_(std::move(filter)) {}

  uint64_t clone_flags() const override {
    return CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  }
  int processes_beside() const override { return 1; }  // the group's maker
  // It stays where it is where that cannot be.
  void prepare() override { is_prepared_ = geteuid() == 0 && prepare_root().ok(); }

  [[noreturn]] void begin(const SandboxSpec& spec, const InnerEnds& ends) override {
    prctl(PR_SET_NAME, "tandem-init");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    char byte = 0;
    if (read(ends.go, &byte, 1) != 1) _exit(1);  // the spawner could not write the maps, and says so itself
    auto there = keep_only(ends.socket, ends.there);
    confine_and_serve(3, [&]() -> Result<FirstProcess> {
      TRY(become_user({kInnerId, kInnerId}));  // the capabilities of the new user namespace are needed for the root
      if (sethostname("tandem", 6) != 0) return fail(Status::from_errno("host name", errno));
      auto own = TRY(build_root(spec, std::exchange(there, {}), is_prepared_));
      return FirstProcess{spec, filter_, std::move(own)};
    });
  }

  Result<NewProcess> first_process(NewProcess made, int /*first*/) override { return made; }

  Status let_go(const NewProcess& first, const SandboxSpec& spec, int /*socket*/, int go) override {
    const auto map = [&]() -> Status {
      const User user = outer_user(spec);
      TRY(write_map(first.process, "setgroups", "deny"));
      TRY(write_map(first.process, "uid_map", std::to_string(kInnerId) + " " + std::to_string(user.id) + " 1"));
      TRY(write_map(first.process, "gid_map", std::to_string(kInnerId) + " " + std::to_string(user.group) + " 1"));
      return write_all(go, "g", "sandbox");
    };
    const Status status = map();
    // What is missing then is the process, and nothing of the machine.
    if (!status && has_ended(first.handle, 1000))
      return Status::unavailable("the first process was killed while it was made");
    return status ? status : Status::unfit(status.message());
  }

 private:
  const std::string filter_;
  bool is_prepared_ = false;
};

}  // namespace

Result<std::unique_ptr<Isolation>> isolate_by_namespaces(std::string filter) {
  return std::make_unique<NamespaceIsolation>(std::move(filter));
}

}  // namespace tandem::envs
