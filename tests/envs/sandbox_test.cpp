// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

using Sandboxes = EitherSandbox;
FOR_BOTH_KINDS_OF_SANDBOXES(Sandboxes);

TEST_P(Sandboxes, runs_commands_in_an_empty_workspace_as_an_ordinary_user) {
  EXPECT_EQ(shell("pwd; ls -A; id -u; python3 -c 'print(6 * 7)'; awk 'BEGIN {print 1}'; hostname"),
            "/workspace\n1000\n42\n1\ntandem\n");
}

TEST_P(Sandboxes, a_call_says_what_its_programs_have_used_of_the_processors) {
  const auto busy =
      call("run_terminal_cmd",
           {{"command",
             "python3 -c 'import time, itertools; all(time.process_time() < 0.3 for _ in itertools.count())' | cat"}});
  EXPECT_GE(busy.core_seconds, 0.3);
  const auto asleep = call("run_terminal_cmd", {{"command", "sleep 1"}});
  EXPECT_LT(asleep.core_seconds, 0.3);
  EXPECT_GE(asleep.seconds, 1);
}

TEST_P(Sandboxes, has_no_capabilities_and_no_way_to_new_ones) {
  const auto status = shell("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status");
  EXPECT_THAT(status, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("CapPrm:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("CapBnd:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
}

TEST_P(Sandboxes, files_of_the_host_cannot_be_reached_by_any_path) {
  Scratch decoy;
  decoy.put("secret", "s3cret\n");
  const auto path = (decoy.path / "secret").string();
  for (const std::string& way : {path, "../../../.." + path, "/proc/1/root" + path, "/proc/self/root" + path,
                                 "/proc/1/cwd/.." + path, "/workspace/../.." + path}) {
    EXPECT_THAT(shell("cat " + way + " 2>&1"), Not(HasSubstr("s3cret"))) << way;
    EXPECT_FALSE(call("read_file", {{"target_file", way}}).ok) << way;
  }
  shell("ln -s " + path + " link; ln -s / rootlink; ln " + path + " hard");
  for (const char* name : {"link", "hard"}) EXPECT_FALSE(call("read_file", {{"target_file", name}}).ok) << name;
  EXPECT_FALSE(call("write", {{"file_path", "rootlink" + path}, {"contents", "gone"}}).ok);
  call("write", {{"file_path", "link"}, {"contents", "gone"}});  // may replace the link, never what it names
  shell("echo gone > " + path + "; rm -rf " + decoy.path.string());
  EXPECT_EQ(decoy.get("secret"), "s3cret\n");
}

TEST_P(Sandboxes, the_system_is_read_only_and_holds_nothing_private) {
  const auto outcome = shell(
      "touch /usr/x /etc/x /x /dev/x /bin/x 2>&1; cat /etc/shadow 2>&1; ls /home /root /sys /var /run /boot /mnt 2>&1");
  EXPECT_EQ(outcome.find("root:$"), std::string::npos);
  for (const char* path : {"/usr/x", "/etc/x", "/x", "/dev/x", "/home", "/root", "/var", "/run"}) {
    EXPECT_THAT(outcome, testing::AnyOf(HasSubstr("'" + std::string(path) + "': "))) << path;
  }
  EXPECT_EQ(shell("cd /sys; find . -type f | sort; touch x devices/x 2> /dev/null || echo refused"),
            "./devices/system/cpu/online\n./devices/system/cpu/possible\n./devices/system/cpu/present\nrefused\n");
}

TEST_P(Sandboxes, proc_shows_only_processes_of_the_sandbox) {
  for (const std::string name : {"sys", "kcore", "sysrq-trigger", "keys", "kmsg", "mem"}) {
    // The names may be left, with nothing behind them.
    const auto path = "/proc/" + name;
    EXPECT_EQ(shell("cat " + path + " 2>/dev/null; ls -A " + path + "/ 2>/dev/null; true"), "[no output]\n") << name;
    EXPECT_EQ(shell("{ echo x > " + path + "; touch " + path + "/x; } 2>/dev/null || echo refused"), "refused\n");
  }
  EXPECT_THAT(shell("cat /proc/" + std::to_string(getpid()) + "/environ 2>&1"), HasSubstr("No such file"));
  EXPECT_THAT(shell("cat /proc/1/environ /proc/1/maps 2>&1"), HasSubstr("Permission denied"));
  EXPECT_THAT(shell("ls -l /proc/1/fd /proc/1/root/ 2>&1"), HasSubstr("Permission denied"));
}

TEST_P(Sandboxes, the_environment_and_descriptors_of_the_host_stay_outside) {
  setenv("TANDEM_SECRET", "s3cret", 1);
  FileDescriptor open_file(open("/etc/passwd", O_RDONLY));  // without close-on-exec, on purpose
  auto backend = NamespaceBackend::start(isolated_by_);
  auto sandbox = (*backend)->create(spec_);
  const auto outcome =
      (*sandbox)->call("run_terminal_cmd", {{"command", "env; cat /proc/*/environ; ls -l /proc/self/fd"}});
  EXPECT_THAT(outcome->output, Not(HasSubstr("s3cret")));
  EXPECT_THAT(outcome->output, Not(HasSubstr("passwd")));
  EXPECT_THAT(outcome->output, Not(HasSubstr("socket")));
  unsetenv("TANDEM_SECRET");
}

TEST_P(Sandboxes, processes_outside_can_be_neither_seen_nor_signalled) {
  const pid_t decoy = fork();
  if (decoy == 0) {
    pause();
    _exit(0);
  }
  EXPECT_THAT(shell("kill -9 " + std::to_string(decoy) + " 2>&1"), HasSubstr("No such process"));
  shell("kill -9 -1; true");
  EXPECT_EQ(waitpid(decoy, nullptr, WNOHANG), 0);
  EXPECT_EQ(shell("echo still here"), "still here\n");
  kill(decoy, SIGKILL);
  waitpid(decoy, nullptr, 0);
}

TEST_P(Sandboxes, there_is_no_network_but_loopback) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  FileDescriptor abstract(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string decoy = "tandem-decoy-" + std::to_string(getpid());
  decoy.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  ASSERT_EQ(bind(abstract.get(), reinterpret_cast<sockaddr*>(&name), static_cast<socklen_t>(3 + decoy.size())), 0);
  ASSERT_EQ(listen(abstract.get(), 1), 0);

  const auto output = python(
      "import socket\n"
      "def attempt(what, work):\n"
      "    try:\n"
      "        work(); print(what, 'worked')\n"
      "    except OSError as error:\n"
      "        print(what, 'refused')\n"
      "attempt('host', lambda: socket.create_connection(('127.0.0.1', " +
      std::to_string(ntohs(address.sin_port)) +
      "), 2))\n"
      "attempt('world', lambda: socket.create_connection(('1.1.1.1', 53), 2))\n"
      "attempt('metadata', lambda: socket.create_connection(('169.254.169.254', 80), 2))\n"
      "attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0" +
      decoy +
      "'))\n"
      "attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))\n"
      "attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW))\n"
      "attempt('netlink', lambda: socket.socket(16, socket.SOCK_RAW, 15))\n"
      "attempt('interfaces', lambda: print([name for _, name in socket.if_nameindex()]))\n"
      "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
      "attempt('own', lambda: socket.create_connection(s.getsockname(), 2))\n");
  EXPECT_EQ(output,
            "host refused\nworld refused\nmetadata refused\nabstract refused\nvsock refused\npacket refused\n"
            "netlink refused\n['lo']\ninterfaces worked\nown worked\n");
}

TEST_P(Sandboxes, dangerous_system_calls_are_refused) {
  const auto output = python(
      "import ctypes, os\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "calls = dict(ptrace=101, mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, bpf=321,\n"
      "             perf_event_open=298, io_uring_setup=425, keyctl=250, add_key=248, userfaultfd=323, open_tree=428,\n"
      "             move_mount=429, fsopen=430, mount_setattr=442, open_by_handle_at=304, process_vm_readv=310,\n"
      "             init_module=175, kexec_load=246, settimeofday=164, reboot=169, sethostname=170, swapon=167)\n"
      "for name, number in calls.items():\n"
      "    result = libc.syscall(number, 0, 0, 0, 0, 0)\n"
      "    if result != -1 or ctypes.get_errno() != 1: print(name, result, ctypes.get_errno())\n"
      "if libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) != -1: print('clone with a user namespace'); os._exit(0)\n"
      "if libc.syscall(435, 0, 0) != -1 or ctypes.get_errno() != 38: print('clone3')\n"
      "print('done')\n");
  EXPECT_EQ(output, "done\n");
}

TEST_P(Sandboxes, devices_setuid_programs_and_terminal_injection_are_refused) {
  EXPECT_THAT(shell("mknod disk b 254 0 2>&1"), HasSubstr("not permitted"));
  EXPECT_THAT(shell("su -c id 2>&1; sudo id 2>&1; true"), Not(HasSubstr("uid=0")));
  EXPECT_EQ(python("import fcntl, os\n"
                   "for request in (0x5412, 0x541C):\n"
                   "    try: fcntl.ioctl(os.open('/dev/null', 0), request, b'x'); print('worked')\n"
                   "    except OSError as error: print(error.errno)\n"),
            "1\n1\n");
}

TEST_P(Sandboxes, the_first_process_cannot_be_harmed_from_inside) {
  shell("kill -9 1; kill -STOP 1; for s in $(seq 1 31); do kill -$s 1; done; true");
  EXPECT_THAT(python("open('/proc/1/mem', 'r+b')"), HasSubstr("PermissionError"));
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_P(Sandboxes, a_command_that_kills_the_process_that_serves_it_harms_only_its_own_call) {
  const auto outcome = call("run_terminal_cmd", {{"command", "kill -9 $PPID; sleep 1"}});
  EXPECT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.output, HasSubstr("killed"));
  EXPECT_EQ(shell("echo well"), "well\n");
}

}  // namespace
}  // namespace tandem::envs
