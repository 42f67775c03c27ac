#include "envs/sandbox/guest.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "envs/sandbox/confine.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/spec_message.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

const char* const kGuestArgument = "--tandem-guest";

namespace {

constexpr const char* kGuestWorkspace = "/workspace";

Result<FirstProcess> decode_process(std::string_view bytes) {
  FieldReader fields(bytes);
  FirstProcess process;
  process.filter = TRY(fields.text());
  process.spec = TRY(decode_spec(fields.rest()));
  return process;
}

// Where the guest has no user namespace it may be root: then it becomes who a sandbox of root's is.
Status leave_root(const SandboxSpec& spec) {
  if (getuid() != 0) return {};
  const User user = outer_user(spec.workspace ? std::optional<fs::path>(kGuestWorkspace) : std::nullopt);
  // Root of a namespace that has no such user is an ordinary one outside of it, and stays that.
  if (!spec.workspace && chown(kGuestWorkspace, user.id, user.group) != 0)
    return errno == EINVAL ? Status() : Status::from_errno(kGuestWorkspace, errno);
  return user.id == 0 ? Status() : become_user(user);
}

[[noreturn]] void become_guest(int socket) {
  dup2(socket, 3);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  confine_and_serve(3, []() -> Result<FirstProcess> {
    auto process = TRY(decode_process(TRY(receive_frame(3, SystemClock().now() + std::chrono::seconds(20)))));
    TRY(leave_root(process.spec));
    if (chdir(kGuestWorkspace) != 0) return fail(Status::from_errno(kGuestWorkspace, errno));
    (void)tool_schemas();  // read here once, not in every process that serves a call
    return process;
  });
}

// Runs before main of whatever program this is linked into.
__attribute__((constructor)) void guest_entry(int argc, char** argv) {
  if (argc != 4 || strcmp(argv[1], kGuestArgument) != 0) return;
  if (argv[2][0] == '/') {
    const auto connected = connect_to(argv[2]);
    if (!connected) {
      fprintf(stderr, "%s\n", connected.error().message().c_str());
      _exit(1);
    }
    become_guest(connected->get());
  }
  const int socket = atoi(argv[2]);
  struct stat info {};
  if (fstat(socket, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  // Who holds the other end has made it, or is the parent of who did. In a container nobody's parent is: what starts
  // one ends before it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  become_guest(socket);
}

}  // namespace

Status send_to_guest(int socket, const FirstProcess& process, Time deadline) {
  std::string bytes;
  put_text(bytes, process.filter);
  return send_frame(socket, bytes + encode(process.spec), deadline);
}

}  // namespace tandem::envs
