// Limits, capabilities, and the moment from which a process has neither more of them nor other system calls.
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "envs/sandbox/confine.h"

namespace tandem::envs {
namespace {

Status check(long result, const char* what) { return result < 0 ? Status::from_errno(what, errno) : Status(); }

Status limit(__rlimit_resource resource, uint64_t value, const char* what) {
  rlimit now{};
  getrlimit(resource, &now);
  const rlimit wanted = {std::min<rlim_t>(value, now.rlim_max), std::min<rlim_t>(value, now.rlim_max)};
  return check(setrlimit(resource, &wanted), what);
}

using Capabilities = std::array<__user_cap_data_struct, 2>;  // 32 of each set in each

Result<Capabilities> held() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  Capabilities capabilities{};
  TRY(check(syscall(SYS_capget, &header, capabilities.data()), "capabilities"));
  return capabilities;
}

Status hold(const Capabilities& capabilities) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  return check(syscall(SYS_capset, &header, capabilities.data()), "capabilities");
}

// Who may not touch the bounding set must have an empty one.
Status drop_capabilities() {
  const bool may_bound = TRY(held())[0].effective & (1u << CAP_SETPCAP);
  int capability = 0;
  if (may_bound) {
    while (prctl(PR_CAPBSET_DROP, capability) == 0) ++capability;
    if (errno != EINVAL || capability == 0) return Status::from_errno("dropping capabilities", errno);
  }
  // The kernel knows none of this number and above where all were dropped.
  while (prctl(PR_CAPBSET_READ, capability) == 0) ++capability;
  if (prctl(PR_CAPBSET_READ, capability) > 0)
    return Status::unfit("capability " + std::to_string(capability) +
                         " is left in the bounding set, and may not be dropped");
  if (may_bound) {
    constexpr int kBits = SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE;
    TRY(check(prctl(PR_SET_SECUREBITS, kBits | (kBits << 1) | SECBIT_KEEP_CAPS_LOCKED), "securebits"));
  }
  TRY(hold({}));
  for (const auto& each : TRY(held())) {
    if ((each.effective | each.permitted | each.inheritable) != 0) return Status::unfit("a capability is left");
  }
  return {};
}

}  // namespace

Status set_limits(const SandboxSpec& spec) {
  TRY(limit(RLIMIT_CORE, 0, "limit of core files"));
  TRY(limit(RLIMIT_NOFILE, 1024, "limit of open files"));
  TRY(limit(RLIMIT_FSIZE, spec.file_bytes, "limit of file size"));
#if !defined(TANDEM_SANITIZED)
  // Programs with sanitizers map terabytes for themselves that they do not use; so do builds of ours with them.
  if (!spec.memory_is_bounded) TRY(limit(RLIMIT_DATA, spec.memory_bytes, "limit of memory"));
#endif
  TRY(limit(RLIMIT_MEMLOCK, 64 << 10, "limit of locked memory"));
  TRY(limit(RLIMIT_MSGQUEUE, 0, "limit of message queues"));
  if (spec.processes == 0) return {};  // the user may have processes elsewhere, which would count
  return limit(RLIMIT_NPROC, static_cast<uint64_t>(spec.processes), "limit of processes");
}

User outer_user(const std::optional<fs::path>& folder) {
  if (geteuid() != 0) return {geteuid(), getegid()};
  struct stat info {};
  if (folder && stat(folder->c_str(), &info) == 0) return {info.st_uid, info.st_gid};
  return {kNobody, kNobody};
}

User outer_user(const SandboxSpec& spec) { return outer_user(spec.below ? spec.below->folder : spec.workspace); }

Status become_user(const User& user) {
  int at_end_of_parent = 0;  // the signal, which is lost with the user
  TRY(check(prctl(PR_GET_PDEATHSIG, &at_end_of_parent), "signal at the end of the parent"));
  TRY(check(prctl(PR_SET_KEEPCAPS, 1), "capabilities"));
  // Groups of root, which the list of a container's image may give it; a namespace of an ordinary user has none.
  if (setgroups(0, nullptr) != 0 && errno != EPERM) return Status::from_errno("groups", errno);
  TRY(check(setresgid(user.group, user.group, user.group), "group"));
  TRY(check(setresuid(user.id, user.id, user.id), "user"));
  auto capabilities = TRY(held());
  for (auto& each : capabilities) each.effective = each.permitted;
  TRY(hold(capabilities));
  return check(prctl(PR_SET_PDEATHSIG, at_end_of_parent), "signal at the end of the parent");
}

Status drop_privileges(const std::string& filter, const Links& links) {
  TRY(drop_capabilities());
  TRY(check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs"));
  TRY(restrict_files(links));
  sock_fprog program = {static_cast<unsigned short>(filter.size() / sizeof(sock_filter)),
                        reinterpret_cast<sock_filter*>(const_cast<char*>(filter.data()))};
  return check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "system call filter");
}

}  // namespace tandem::envs
