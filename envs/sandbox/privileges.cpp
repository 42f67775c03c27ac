#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/securebits.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/file.h"
#include "envs/sandbox/confine.h"

namespace tandem::envs {
namespace {

// Calls that no program of a model needs, and that have been doors before.
constexpr std::array kRefused = {"mount",
                                 "umount2",
                                 "pivot_root",
                                 "chroot",
                                 "unshare",
                                 "setns",
                                 "fsopen",
                                 "fsconfig",
                                 "fsmount",
                                 "fspick",
                                 "move_mount",
                                 "open_tree",
                                 "mount_setattr",
                                 "open_by_handle_at",
                                 "name_to_handle_at",
                                 "ptrace",
                                 "process_vm_readv",
                                 "process_vm_writev",
                                 "pidfd_getfd",
                                 "kcmp",
                                 "bpf",
                                 "perf_event_open",
                                 "io_uring_setup",
                                 "io_uring_enter",
                                 "io_uring_register",
                                 "keyctl",
                                 "add_key",
                                 "request_key",
                                 "userfaultfd",
                                 "kexec_load",
                                 "kexec_file_load",
                                 "init_module",
                                 "finit_module",
                                 "delete_module",
                                 "swapon",
                                 "swapoff",
                                 "reboot",
                                 "syslog",
                                 "acct",
                                 "quotactl",
                                 "quotactl_fd",
                                 "settimeofday",
                                 "clock_settime",
                                 "clock_adjtime",
                                 "adjtimex",
                                 "sethostname",
                                 "setdomainname",
                                 "iopl",
                                 "ioperm",
                                 "personality",
                                 "lookup_dcookie",
                                 "vhangup",
                                 "fanotify_init",
                                 "nfsservctl",
                                 "uselib",
                                 "ustat",
                                 "sysfs",
                                 "_sysctl",
                                 "move_pages",
                                 "migrate_pages",
                                 "mbind",
                                 "set_mempolicy"};

constexpr uint64_t kNamespaceFlags = 0x7E020000 | 0x80;  // CLONE_NEW* of clone, time included

Status check(long result, const char* what) { return result < 0 ? Status::from_errno(what, errno) : Status(); }

Status limit(__rlimit_resource resource, uint64_t value, const char* what) {
  rlimit now{};
  getrlimit(resource, &now);
  const rlimit wanted = {std::min<rlim_t>(value, now.rlim_max), std::min<rlim_t>(value, now.rlim_max)};
  return check(setrlimit(resource, &wanted), what);
}

}  // namespace

Status set_limits(const SandboxSpec& spec) {
  TRY(limit(RLIMIT_CORE, 0, "limit of core files"));
  TRY(limit(RLIMIT_NOFILE, 1024, "limit of open files"));
  TRY(limit(RLIMIT_FSIZE, spec.file_bytes, "limit of file size"));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // Sanitizers map terabytes for themselves; in their builds control groups bound memory alone.
  TRY(limit(RLIMIT_DATA, spec.memory_bytes, "limit of memory"));
#endif
  TRY(limit(RLIMIT_MEMLOCK, 64 << 10, "limit of locked memory"));
  TRY(limit(RLIMIT_MSGQUEUE, 0, "limit of message queues"));
  return limit(RLIMIT_NPROC, static_cast<uint64_t>(spec.processes), "limit of processes");
}

Result<std::string> make_filter() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ALLOW), seccomp_release);
  if (!filter) return fail(Status::unfit("libseccomp cannot make a filter"));
  int error = 0;
  const auto add = [&](uint32_t action, int call, std::initializer_list<scmp_arg_cmp> when) {
    const std::vector<scmp_arg_cmp> conditions(when);
    if (const int result = seccomp_rule_add_array(filter.get(), action, call, static_cast<unsigned>(conditions.size()),
                                                  conditions.data());
        result < 0) {
      error = -result;
    }
  };
  for (const char* name : kRefused) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call != __NR_SCMP_ERROR) add(SCMP_ACT_ERRNO(EPERM), call, {});
  }
  // clone3 hides its flags from the filter; without it, libraries fall back to clone.
  add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), {});
  for (uint64_t bit = 1; bit <= kNamespaceFlags; bit <<= 1) {
    if (kNamespaceFlags & bit) add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), {SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit)});
  }
  add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), {SCMP_A1(SCMP_CMP_MASKED_EQ, 0xFFFFFFFF, TIOCSTI)});
  add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), {SCMP_A1(SCMP_CMP_MASKED_EQ, 0xFFFFFFFF, TIOCLINUX)});
  // Unix and internet sockets only; the latter reach loopback and nothing else.
  for (int family = 0; family < 48; ++family) {
    if (family != AF_UNIX && family != AF_INET && family != AF_INET6) {
      add(SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), {SCMP_A0(SCMP_CMP_EQ, static_cast<uint64_t>(family))});
    }
  }
  FileDescriptor memory(static_cast<int>(memfd_create("tandem-filter", MFD_CLOEXEC)));
  if (error == 0) error = -seccomp_export_bpf(filter.get(), memory.get());
  if (error != 0) return fail(Status::from_errno("making the system call filter", error));
  const off_t size = lseek(memory.get(), 0, SEEK_END);
  std::string program(static_cast<size_t>(size), '\0');
  if (pread(memory.get(), program.data(), program.size(), 0) != size) return fail(Status::from_errno("filter", errno));
  return program;
}

Status raise_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2] = {};
  TRY(check(syscall(SYS_capget, &header, all), "capabilities"));
  for (auto& each : all) each.effective = each.permitted;
  return check(syscall(SYS_capset, &header, all), "capabilities");
}

Status drop_privileges(const std::string& filter) {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    TRY(check(prctl(PR_CAPBSET_DROP, capability), "dropping capabilities"));
  }
  constexpr int kBits = SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE;
  TRY(check(prctl(PR_SET_SECUREBITS, kBits | (kBits << 1) | SECBIT_KEEP_CAPS_LOCKED), "securebits"));
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  TRY(check(syscall(SYS_capset, &header, none), "dropping capabilities"));
  TRY(check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs"));
  sock_fprog program = {static_cast<unsigned short>(filter.size() / sizeof(sock_filter)),
                        reinterpret_cast<sock_filter*>(const_cast<char*>(filter.data()))};
  return check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "system call filter");
}

}  // namespace tandem::envs
