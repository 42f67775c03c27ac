// The system calls that programs of a model may make. Everything else is refused.
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/file.h"
#include "envs/sandbox/confine.h"

namespace tandem::envs {
namespace {

// What shells, interpreters, compilers and their tests need, by what it is for. Names that this machine's libseccomp or
// processor does not know are left out.
constexpr const char* kAllowed[] = {
    // files
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "open",
    "openat", "openat2", "creat", "close", "close_range", "lseek", "_llseek", "stat", "fstat", "lstat", "newfstatat",
    "stat64", "fstat64", "lstat64", "fstatat64", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2",
    "readlink", "readlinkat", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "chmod",
    "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "umask", "truncate", "ftruncate", "fallocate",
    "utime", "utimes", "utimensat", "futimesat", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "fadvise64",
    "readahead", "dup", "dup2", "dup3", "fcntl", "flock", "pipe", "pipe2", "splice", "tee", "vmsplice", "sendfile",
    "copy_file_range", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr", "setxattr",
    "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "inotify_init", "inotify_init1",
    "inotify_add_watch", "inotify_rm_watch", "memfd_create",
    // memory
    "brk", "mmap", "munmap", "mremap", "mprotect", "msync", "mincore", "madvise", "mlock", "mlock2", "munlock",
    "mlockall", "munlockall", "membarrier", "pkey_alloc", "pkey_free", "pkey_mprotect", "get_mempolicy", "shmget",
    "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    // processes and threads
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "getpid", "getppid", "gettid",
    "getpgid", "setpgid", "getpgrp", "getsid", "setsid", "kill", "tkill", "tgkill", "pidfd_open", "pidfd_send_signal",
    "prctl", "arch_prctl", "set_tid_address", "set_robust_list", "get_robust_list", "futex", "futex_waitv", "rseq",
    "sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler",
    "sched_getparam", "sched_setparam", "sched_getattr", "sched_setattr", "sched_get_priority_max",
    "sched_get_priority_min", "sched_rr_get_interval", "getpriority", "setpriority", "ioprio_get", "ioprio_set",
    "getrlimit", "setrlimit", "prlimit64", "getrusage", "times", "getcpu", "capget", "seccomp",
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
    // who one is, which nobody can change to anything
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "setuid", "setgid", "setreuid", "setregid",
    "setresuid", "setresgid", "setfsuid", "setfsgid", "getgroups", "setgroups", "capset",
    // signals and time
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", "sigreturn", "signalfd", "signalfd4", "pause", "alarm",
    "setitimer", "getitimer", "restart_syscall", "time", "gettimeofday", "clock_gettime", "clock_getres",
    "clock_nanosleep", "nanosleep", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun",
    "timer_delete", "timerfd_create", "timerfd_settime", "timerfd_gettime", "select", "_newselect", "pselect6", "poll",
    "ppoll", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_wait", "epoll_wait_old",
    "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2",
    // sockets, whose families are below
    "bind", "listen", "accept", "accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt",
    "setsockopt", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
    // the machine
    "uname", "sysinfo", "getrandom"};

// TCGETS2 and its like, whose headers do not go together with those of the C library.
constexpr unsigned long kGetTerminal2 = 0x802C542A, kSetTerminal2 = 0x402C542B, kSetTerminal2Wait = 0x402C542C,
                        kSetTerminal2Flush = 0x402C542D;

// Requests of ioctl: terminals, without putting text into them (TIOCSTI, TIOCLINUX); waiting bytes; copies and
// attributes of files; what interfaces of the network there are.
constexpr std::array<unsigned long, 52> kRequests = {TCGETS,
                                                     TCSETS,
                                                     TCSETSW,
                                                     TCSETSF,
                                                     TCGETA,
                                                     TCSETA,
                                                     TCSETAW,
                                                     TCSETAF,
                                                     TCSBRK,
                                                     TCSBRKP,
                                                     TCXONC,
                                                     TCFLSH,
                                                     TIOCGWINSZ,
                                                     TIOCSWINSZ,
                                                     TIOCGPGRP,
                                                     TIOCSPGRP,
                                                     TIOCGSID,
                                                     TIOCSCTTY,
                                                     TIOCNOTTY,
                                                     TIOCEXCL,
                                                     TIOCNXCL,
                                                     TIOCOUTQ,
                                                     TIOCGPTN,
                                                     TIOCSPTLCK,
                                                     TIOCGPTPEER,
                                                     FIONREAD,
                                                     FIONBIO,
                                                     FIOASYNC,
                                                     FIOCLEX,
                                                     FIONCLEX,
                                                     FICLONE,
                                                     FICLONERANGE,
                                                     FIGETBSZ,
                                                     FS_IOC_GETFLAGS,
                                                     FS_IOC_FIEMAP,
                                                     FS_IOC_FSGETXATTR,
                                                     SIOCGIFCONF,
                                                     SIOCGIFNAME,
                                                     SIOCGIFINDEX,
                                                     SIOCGIFFLAGS,
                                                     SIOCGIFADDR,
                                                     SIOCGIFDSTADDR,
                                                     SIOCGIFBRDADDR,
                                                     SIOCGIFNETMASK,
                                                     SIOCGIFMETRIC,
                                                     SIOCGIFMTU,
                                                     SIOCGIFHWADDR,
                                                     SIOCGIFTXQLEN,
                                                     kGetTerminal2,
                                                     kSetTerminal2,
                                                     kSetTerminal2Wait,
                                                     kSetTerminal2Flush};

// Libraries try these first and do without where the kernel has never heard of them. clone3 hides its flags from the
// filter.
constexpr std::array kUnknown = {"clone3"};
// Calls that are younger than this list: numbers are the same on all processors from 424 on.
constexpr int kFirstYoung = 451, kLastYoung = 511;

constexpr uint64_t kNamespaceFlags = 0x7E020000 | 0x80;  // CLONE_NEW* of clone, time included
constexpr uint64_t kWord = 0xFFFFFFFF;                   // of an argument, what the kernel looks at

class Rules {
 public:
  Rules() : filter_(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release) {}

  void add(uint32_t action, int call, std::initializer_list<scmp_arg_cmp> when = {}) {
    const std::vector<scmp_arg_cmp> conditions(when);
    const int result = seccomp_rule_add_array(filter_.get(), action, call, static_cast<unsigned>(conditions.size()),
                                              conditions.data());
    if (result < 0 && error_ == 0) error_ = -result;
  }

  void add(uint32_t action, const char* name, std::initializer_list<scmp_arg_cmp> when = {}) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call != __NR_SCMP_ERROR) add(action, call, when);
  }

  // As the kernel takes it.
  Result<std::string> program() {
    if (!filter_) return fail(Status::unfit("libseccomp cannot make a filter"));
    FileDescriptor memory(memfd_create("tandem-filter", MFD_CLOEXEC));
    // By a tree of comparisons: the filter runs before every call of every program.
    if (error_ == 0) error_ = -seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (error_ == 0) error_ = -seccomp_export_bpf(filter_.get(), memory.get());
    if (error_ != 0) return fail(Status::from_errno("making the system call filter", error_));
    const off_t size = lseek(memory.get(), 0, SEEK_END);
    std::string program(static_cast<size_t>(size), '\0');
    if (pread(memory.get(), program.data(), program.size(), 0) != size)
      return fail(Status::from_errno("filter", errno));
    return program;
  }

 private:
  std::unique_ptr<void, decltype(&seccomp_release)> filter_;
  int error_ = 0;
};

}  // namespace

Result<std::string> make_filter() {
  Rules rules;
  for (const char* name : kAllowed) rules.add(SCMP_ACT_ALLOW, name);
  for (const char* name : kUnknown) rules.add(SCMP_ACT_ERRNO(ENOSYS), name);
  for (int call = kFirstYoung; call <= kLastYoung; ++call) rules.add(SCMP_ACT_ERRNO(ENOSYS), call);
  rules.add(SCMP_ACT_ALLOW, "clone", {SCMP_A0(SCMP_CMP_MASKED_EQ, kNamespaceFlags, 0)});
  // Pipes, sockets and files; no devices.
  for (const uint64_t kind : {uint64_t{0}, uint64_t{S_IFREG}, uint64_t{S_IFIFO}, uint64_t{S_IFSOCK}}) {
    rules.add(SCMP_ACT_ALLOW, "mknod", {SCMP_A1(SCMP_CMP_MASKED_EQ, S_IFMT, kind)});
    rules.add(SCMP_ACT_ALLOW, "mknodat", {SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, kind)});
  }
  for (const auto request : kRequests) {
    rules.add(SCMP_ACT_ALLOW, "ioctl", {SCMP_A1(SCMP_CMP_MASKED_EQ, kWord, request)});
  }
  // Unix and internet sockets; the latter reach loopback and nothing else. By netlink programs list the interfaces,
  // which is loopback; to change them takes a capability. Programs that try younger families first expect to hear that
  // there are none.
  for (const uint64_t family : {AF_UNIX, AF_INET, AF_INET6}) {
    rules.add(SCMP_ACT_ALLOW, "socket", {SCMP_A0(SCMP_CMP_EQ, family)});
  }
  constexpr uint64_t kRoutes = 0;  // NETLINK_ROUTE
  rules.add(SCMP_ACT_ALLOW, "socket", {SCMP_A0(SCMP_CMP_EQ, uint64_t{AF_NETLINK}), SCMP_A2(SCMP_CMP_EQ, kRoutes)});
  rules.add(SCMP_ACT_ERRNO(EAFNOSUPPORT), "socket",
            {SCMP_A0(SCMP_CMP_EQ, uint64_t{AF_NETLINK}), SCMP_A2(SCMP_CMP_NE, kRoutes)});
  for (uint64_t family = AF_INET6 + 1; family <= AF_MAX; ++family) {
    if (family != AF_NETLINK) rules.add(SCMP_ACT_ERRNO(EAFNOSUPPORT), "socket", {SCMP_A0(SCMP_CMP_EQ, family)});
  }
  rules.add(SCMP_ACT_ERRNO(EAFNOSUPPORT), "socket", {SCMP_A0(SCMP_CMP_GT, uint64_t{AF_MAX})});
  rules.add(SCMP_ACT_ALLOW, "socketpair", {SCMP_A0(SCMP_CMP_EQ, uint64_t{AF_UNIX})});
  rules.add(SCMP_ACT_ERRNO(EAFNOSUPPORT), "socketpair", {SCMP_A0(SCMP_CMP_GT, uint64_t{AF_UNIX})});
  return rules.program();
}

}  // namespace tandem::envs
