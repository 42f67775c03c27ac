// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "envs/demonstration.h"
#include "envs/episode.h"
#include "envs/sandbox/cgroup.h"
#include "envs/sandbox/namespace_backend.h"
#include "envs/sandbox/pool.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

// Processes whose parent is `parent`, by name.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto stat = read_file(entry.path() / "stat");
    if (!stat || !std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0]))) continue;
    const auto rest = stat->substr(stat->rfind(')') + 2);  // "S PPID ..."
    if (rest[0] != 'Z' && atoi(rest.c_str() + 2) == parent) found.push_back(atoi(entry.path().filename().c_str()));
  }
  return found;
}

size_t count_entries(const char* folder) {
  std::error_code error;
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder, error), fs::directory_iterator()));
}

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 200; ++i) {
    if (condition()) return true;
    usleep(20'000);
  }
  return false;
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = NamespaceBackend::start();
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    backend_ = std::move(*backend);
    spec_.call_time_limit_s = 10;
    spec_.output_limit = 20'000;
    make();
  }
  void make() {
    auto sandbox = backend_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
    sandbox_ = std::move(*sandbox);
  }
  ToolOutcome call(const char* name, const Json& arguments) {
    const auto outcome = sandbox_->call(name, arguments);
    EXPECT_TRUE(outcome.has_value()) << outcome.error().to_string();
    return outcome ? *outcome : ToolOutcome{};
  }
  std::string shell(const std::string& command) { return call("run_terminal_cmd", {{"command", command}}).output; }
  // The output of a Python program.
  std::string python(const std::string& program) { return shell("python3 - <<'END'\n" + program + "\nEND\n"); }

  std::unique_ptr<NamespaceBackend> backend_;
  SandboxSpec spec_;
  std::unique_ptr<Sandbox> sandbox_;
};

TEST_F(SandboxTest, runs_commands_in_an_empty_workspace_as_an_ordinary_user) {
  EXPECT_EQ(shell("pwd; ls -A; id -u; python3 -c 'print(6 * 7)'; awk 'BEGIN {print 1}'; hostname"),
            "/workspace\n1000\n42\n1\ntandem\n");
}

TEST_F(SandboxTest, has_no_capabilities_and_no_way_to_new_ones) {
  const auto status = shell("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status");
  EXPECT_THAT(status, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("CapPrm:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("CapBnd:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
}

TEST_F(SandboxTest, files_of_the_host_cannot_be_reached_by_any_path) {
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

TEST_F(SandboxTest, the_system_is_read_only_and_holds_nothing_private) {
  const auto outcome = shell(
      "touch /usr/x /etc/x /x /dev/x /bin/x 2>&1; cat /etc/shadow 2>&1; ls /home /root /sys /var /run /boot /mnt 2>&1");
  EXPECT_EQ(outcome.find("root:$"), std::string::npos);
  for (const char* path : {"/usr/x", "/etc/x", "/x", "/dev/x", "/home", "/root", "/sys", "/var", "/run"}) {
    EXPECT_THAT(outcome, testing::AnyOf(HasSubstr("'" + std::string(path) + "': "))) << path;
  }
}

TEST_F(SandboxTest, proc_shows_only_processes_of_the_sandbox) {
  const auto listing = shell("ls /proc");
  for (const char* name : {"sys", "kcore", "sysrq-trigger", "keys", "kmsg", "mem"}) {
    EXPECT_THAT(listing, Not(HasSubstr("\n" + std::string(name) + "\n"))) << name;
  }
  EXPECT_THAT(shell("cat /proc/" + std::to_string(getpid()) + "/environ 2>&1"), HasSubstr("No such file"));
  EXPECT_THAT(shell("cat /proc/1/environ /proc/1/maps 2>&1"), HasSubstr("Permission denied"));
  EXPECT_THAT(shell("ls -l /proc/1/fd /proc/1/root/ 2>&1"), HasSubstr("Permission denied"));
}

TEST_F(SandboxTest, the_environment_and_descriptors_of_the_host_stay_outside) {
  setenv("TANDEM_SECRET", "s3cret", 1);
  FileDescriptor open_file(open("/etc/passwd", O_RDONLY));  // without close-on-exec, on purpose
  auto backend = NamespaceBackend::start();
  auto sandbox = (*backend)->create(spec_);
  const auto outcome =
      (*sandbox)->call("run_terminal_cmd", {{"command", "env; cat /proc/*/environ; ls -l /proc/self/fd"}});
  EXPECT_THAT(outcome->output, Not(HasSubstr("s3cret")));
  EXPECT_THAT(outcome->output, Not(HasSubstr("passwd")));
  EXPECT_THAT(outcome->output, Not(HasSubstr("socket")));
  unsetenv("TANDEM_SECRET");
}

TEST_F(SandboxTest, processes_outside_can_be_neither_seen_nor_signalled) {
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

TEST_F(SandboxTest, there_is_no_network_but_loopback) {
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
      "attempt('netlink', lambda: socket.socket(16, socket.SOCK_RAW))\n"
      "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
      "attempt('own', lambda: socket.create_connection(s.getsockname(), 2))\n");
  EXPECT_EQ(output,
            "host refused\nworld refused\nmetadata refused\nabstract refused\nvsock refused\npacket refused\n"
            "netlink refused\nown worked\n");
}

TEST_F(SandboxTest, dangerous_system_calls_are_refused) {
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

TEST_F(SandboxTest, devices_setuid_programs_and_terminal_injection_are_refused) {
  EXPECT_THAT(shell("mknod disk b 254 0 2>&1"), HasSubstr("not permitted"));
  EXPECT_THAT(shell("su -c id 2>&1; sudo id 2>&1; true"), Not(HasSubstr("uid=0")));
  EXPECT_EQ(python("import fcntl, os\n"
                   "for request in (0x5412, 0x541C):\n"
                   "    try: fcntl.ioctl(os.open('/dev/null', 0), request, b'x'); print('worked')\n"
                   "    except OSError as error: print(error.errno)\n"),
            "1\n1\n");
}

TEST_F(SandboxTest, the_first_process_cannot_be_harmed_from_inside) {
  shell("kill -9 1; kill -STOP 1; for s in $(seq 1 31); do kill -$s 1; done; true");
  EXPECT_THAT(python("open('/proc/1/mem', 'r+b')"), HasSubstr("PermissionError"));
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_F(SandboxTest, a_time_limit_ends_everything_the_command_started) {
  spec_.call_time_limit_s = 0.5;
  make();
  const auto outcome =
      call("run_terminal_cmd", {{"command", "setsid sleep 61 & (setsid nohup sleep 62 &) ; tail -f /dev/null"}});
  EXPECT_EQ(outcome.exit_code, 124);
  EXPECT_THAT(outcome.output, HasSubstr("time limit of 0.5 s"));
  EXPECT_EQ(shell("cat /proc/*/cmdline | tr '\\0' ' ' | grep -o 'sleep 6[12]' | head -1; true"), "[no output]\n");
}

TEST_F(SandboxTest, a_daemon_of_a_finished_command_is_gone_and_a_background_command_stays) {
  shell("setsid nohup sleep 71 > /dev/null 2>&1 & disown");
  EXPECT_TRUE(call("run_terminal_cmd", {{"command", "exec sleep 72"}, {"is_background", true}}).ok);
  EXPECT_EQ(shell("cat /proc/*/cmdline | tr '\\0' '\\n' | grep -E '^7[12]$'"), "72\n");
}

TEST_F(SandboxTest, a_fork_bomb_is_bounded_and_the_sandbox_lives_on) {
  spec_.processes = 50;
  spec_.call_time_limit_s = 3;
  make();
  shell("f() { f | f & }; f; sleep 1");
  EXPECT_EQ(shell("echo well"), "well\n");
  EXPECT_THAT(python("import os\n"
                     "n = 0\n"
                     "try:\n"
                     "    while True:\n"
                     "        if os.fork() == 0: import time; time.sleep(5); os._exit(0)\n"
                     "        n += 1\n"
                     "except BlockingIOError: print('stopped', n < 50)\n"
                     "import signal; signal.signal(15, signal.SIG_IGN); os.killpg(0, 15)"),
              HasSubstr("stopped True"));
}

TEST_F(SandboxTest, memory_is_bounded) {
  spec_.memory_bytes = 200 << 20;
  make();
  EXPECT_THAT(python("x = bytearray(300 << 20)"), testing::AnyOf(HasSubstr("MemoryError"), HasSubstr("137")));
  if (!CgroupPool::available().empty()) {
    EXPECT_THAT(
        shell("for i in 1 2 3; do python3 -c 'import time; x = bytearray(90 << 20); time.sleep(2); print(\"lived\")' & "
              "done; wait"),
        Not(HasSubstr("lived\nlived\nlived")));
  }
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_F(SandboxTest, disk_and_files_are_bounded) {
  spec_.disk_bytes = 4 << 20;
  spec_.file_bytes = 2 << 20;
  make();
  EXPECT_THAT(shell("head -c 3000000 /dev/zero > big 2>&1; stat -c %s big"), HasSubstr("2097152"));
  EXPECT_THAT(shell("for i in 1 2 3 4; do head -c 1900000 /dev/zero > f$i; done 2>&1"), HasSubstr("No space left"));
  EXPECT_THAT(shell("rm -f *; for i in $(seq 70000); do echo > i$i; done 2>&1 | head -1"), HasSubstr("No space left"));
}

TEST_F(SandboxTest, endless_output_is_bounded) {
  spec_.call_time_limit_s = 1;
  make();
  const auto outcome = call("run_terminal_cmd", {{"command", "yes"}});
  EXPECT_TRUE(outcome.truncated);
  EXPECT_LT(outcome.output.size(), 21'000u);
}

TEST_F(SandboxTest, a_bound_folder_is_worked_in_and_nothing_beside_it) {
  Scratch folder;
  folder.put("work/a.txt", "one\n");
  folder.put("beside", "s3cret\n");
  spec_.workspace = folder.path / "work";
  make();
  EXPECT_EQ(shell("cat a.txt; echo two >> a.txt; cat ../beside 2>/dev/null; ls"), "one\na.txt\n");
  EXPECT_TRUE(call("write", {{"file_path", "new/b.txt"}, {"contents", "b\n"}}).ok);
  EXPECT_EQ(folder.get("work/a.txt"), "one\ntwo\n");
  EXPECT_EQ(folder.get("work/new/b.txt"), "b\n");
}

TEST_F(SandboxTest, calls_of_several_threads_run_at_once_and_get_their_own_answers) {
  const SystemClock clock;
  const Time start = clock.now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [this, i] { EXPECT_EQ(shell("sleep 0.5; echo " + std::to_string(i)), std::to_string(i) + "\n"); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LT(to_seconds(clock.now() - start), 3);
}

TEST_F(SandboxTest, collecting_ends_what_still_runs_and_brings_only_files) {
  ASSERT_TRUE(sandbox_->put({{"a/b.txt", std::string("x\0y", 3)}}).ok());
  call("run_terminal_cmd", {{"command", "while true; do echo late >> late; done"}, {"is_background", true}});
  shell("mkfifo pipe; ln -s /etc/passwd link; sleep 0.1");
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value()) << collected.error().to_string();
  EXPECT_TRUE(collected->complete);
  EXPECT_EQ(collected->files.at("a/b.txt"), std::string("x\0y", 3));
  EXPECT_EQ(collected->files.at("pipe"), "(not a regular file)");
  EXPECT_EQ(collected->files.at("link"), "(not a regular file)");
  const auto again = sandbox_->collect();
  EXPECT_EQ(again->files.at("late"), collected->files.at("late"));
}

TEST_F(SandboxTest, a_lost_sandbox_is_an_error_of_the_infrastructure) {
  const auto spawner = children_of(getpid());
  ASSERT_EQ(spawner.size(), 1u);
  for (const pid_t process : children_of(spawner[0])) kill(process, SIGKILL);
  const auto outcome = sandbox_->call("list_dir", {{"target_directory", "."}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_FALSE(sandbox_->collect().has_value());
}

TEST_F(SandboxTest, two_hundred_sandboxes_leave_nothing_behind) {
  sandbox_.reset();
  ASSERT_TRUE(eventually([] { return children_of(children_of(getpid())[0]).empty(); }));
  const size_t descriptors = count_entries("/proc/self/fd");
  const auto mounts = read_file("/proc/self/mounts");
  for (int i = 0; i < 200; ++i) {
    make();
    ASSERT_EQ(shell("sleep 99 & echo hi"), "hi\n");
  }
  sandbox_.reset();
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(read_file("/proc/self/mounts"), mounts);
  EXPECT_TRUE(eventually([] { return children_of(children_of(getpid())[0]).empty(); }));
  const auto spawner = children_of(getpid())[0];
  EXPECT_LT(count_entries(("/proc/" + std::to_string(spawner) + "/fd").c_str()), 20u);
  backend_.reset();
  EXPECT_TRUE(children_of(getpid()).empty());
  for (const char* folder : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    EXPECT_FALSE(fs::exists(std::string(folder) + "/tandem-" + std::to_string(spawner) + "-0"));
  }
}

TEST_F(SandboxTest, sandboxes_die_with_their_spawner) {
  call("run_terminal_cmd", {{"command", "sleep 98"}, {"is_background", true}});
  const auto spawner = children_of(getpid())[0];
  const auto inits = children_of(spawner);
  ASSERT_FALSE(inits.empty());
  kill(spawner, SIGKILL);
  EXPECT_TRUE(eventually([&] { return kill(inits[0], 0) != 0; }));
  EXPECT_FALSE(sandbox_->call("list_dir", {{"target_directory", "."}}).has_value());
  EXPECT_FALSE(backend_->create(spec_).has_value());
}

TEST_F(SandboxTest, a_pool_keeps_sandboxes_warm_and_serves_many_threads) {
  SandboxPool pool(*backend_, {}, 3);
  EXPECT_TRUE(eventually([&] { return pool.ready() == 3; }));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&pool] {
      for (int k = 0; k < 5; ++k) {
        auto sandbox = pool.create({.output_limit = 100, .call_time_limit_s = 5});
        ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
        EXPECT_EQ((*sandbox)->call("run_terminal_cmd", {{"command", "ls -A; echo > mine"}})->output, "[no output]\n");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return pool.ready() == 3; }));
}

TEST_F(SandboxTest, the_oracle_scores_one_on_every_kind_and_code_that_cheats_does_not) {
  for (const auto kind : task_kinds()) {
    for (auto split : {Split::kTrain, Split::kHeldout}) {
      Random random(1);
      const auto transcript = demonstrate(*make_task({std::string(kind), split, 77}), random, {}, *backend_);
      ASSERT_TRUE(transcript.has_value()) << transcript.error().to_string();
      EXPECT_EQ(transcript->grade.reward, 1) << kind;
    }
  }
  const auto task = *make_task({"bug", Split::kTrain, 3});
  for (const char* cheat : {"import os, sys\nos._exit(0)\n", "import sys\nsys.exit(0)\n", "while True: pass\n",
                            "import os\nos.write(1, b'True\\n' * 5)\nos._exit(0)\n"}) {
    Files files = task.files;
    for (auto& [path, content] : files) {
      if (!path.starts_with("test_")) content = cheat;
    }
    const auto grade = envs::grade(task, files, "", sandbox_runner(*backend_, 1));
    ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
    EXPECT_EQ(grade->reward, 0) << cheat;
  }
}

TEST_F(SandboxTest, making_one_and_one_call_take_milliseconds) {
  const SystemClock clock;
  std::vector<double> spawns, calls;
  for (int i = 0; i < 100; ++i) {
    const Time start = clock.now();
    make();
    const Time made = clock.now();
    call("list_dir", {{"target_directory", "."}});
    spawns.push_back(to_seconds(made - start) * 1000);
    calls.push_back(to_seconds(clock.now() - made) * 1000);
  }
  std::sort(spawns.begin(), spawns.end());
  std::sort(calls.begin(), calls.end());
  RecordProperty("spawn_ms_p50", std::to_string(spawns[50]));
  printf("create p50 %.2f p99 %.2f ms; call p50 %.2f p99 %.2f ms\n", spawns[50], spawns[99], calls[50], calls[99]);
  EXPECT_LT(spawns[50], 50);  // far above what an idle machine shows, so that a busy one passes
  EXPECT_LT(calls[50], 20);
}

}  // namespace
}  // namespace tandem::envs
