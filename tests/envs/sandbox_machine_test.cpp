// What programs need of a machine: terminals, figures of it, a home, paths that are no links, an end of orphans.
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/cgroup.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

using SandboxMachine = EitherSandbox;
FOR_BOTH_KINDS_OF_SANDBOXES(SandboxMachine);

TEST_P(SandboxMachine, orphans_are_gone_while_the_command_runs) {
  // Ten times as many as there may be processes.
  const auto outcome = call("run_terminal_cmd", {{"command",
                                                  "for i in $(seq 1000); do (true &); done; for k in $(seq 40); do "
                                                  "n=$(ls -d /proc/[0-9]* | wc -l); [ $n -lt 30 ] && break; sleep 0.1; "
                                                  "done; echo $n"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_LT(atoi(outcome.output.c_str()), 30) << outcome.output;
}

TEST_P(SandboxMachine, orphans_of_a_background_command_are_gone_too) {
  call("run_terminal_cmd", {{"command", "for i in $(seq 600); do (true &); done; echo done > done; exec sleep 50"},
                            {"is_background", true}});
  EXPECT_TRUE(within(30s, [&] { return shell("cat done 2>/dev/null") == "done\n"; }));
  // Before the parent ends, with which they would be gone in any case.
  EXPECT_TRUE(within(30s, [&] { return atoi(shell("ls -d /proc/[0-9]* | wc -l").c_str()) < 30; }));
}

TEST_P(SandboxMachine, there_are_pseudo_terminals) {
  EXPECT_EQ(python("import os, pty\n"
                   "child, fd = pty.fork()\n"
                   "if child == 0:\n"
                   "    os.execvp('sh', ['sh', '-c', 'tty; test -t 0 && echo it is one'])\n"
                   "text = b''\n"
                   "while True:\n"
                   "    try: part = os.read(fd, 1000)\n"
                   "    except OSError: break\n"
                   "    if not part: break\n"
                   "    text += part\n"
                   "print(text.decode().replace('\\r', ''), end='')\n"),
            "/dev/pts/0\nit is one\n");
  EXPECT_EQ(shell("script -qc 'echo inside' /dev/null"), "inside\n");
  EXPECT_EQ(shell("ls /dev/pts | grep -v ptmx; ls /proc/self/fd | wc -l > /dev/null"), "[no output]\n")
      << "none of another sandbox or of the host";
}

TEST_P(SandboxMachine, the_machine_tells_the_limits_of_the_sandbox) {
  spec_.memory_bytes = uint64_t{512} << 20;
  make();
  EXPECT_THAT(shell("grep MemTotal /proc/meminfo"), HasSubstr(" 524288 kB"));
  EXPECT_THAT(shell("grep SwapTotal /proc/meminfo"), HasSubstr(" 0 kB"));
  EXPECT_EQ(shell("test $(grep -c ^processor /proc/cpuinfo) = $(nproc) && grep -c '^cpu[0-9]' /proc/stat | xargs test "
                  "$(nproc) = && echo same"),
            "same\n");
  EXPECT_EQ(shell("cat /proc/loadavg"), "0.00 0.00 0.00 1/1 1\n");
  EXPECT_EQ(shell("cd /sys/devices/system/cpu; for n in possible present online; do test $(($(cut -d- -f2 $n) + 1)) = "
                  "$(nproc) && echo $n; done"),
            "possible\npresent\nonline\n");
  EXPECT_EQ(shell("! test -x /usr/bin/lscpu || lscpu > /dev/null && echo fine"), "fine\n");
  EXPECT_THAT(shell("echo x > /proc/meminfo || echo refused"), HasSubstr("refused"));
  EXPECT_EQ(python("import socket\nprint(socket.if_nameindex())"), "[(1, 'lo')]\n");
  EXPECT_EQ(
      python("import fcntl, socket, struct\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "name = struct.pack('256s', b'lo')\n"
             "print(socket.inet_ntoa(fcntl.ioctl(s, 0x8915, name)[20:24]), fcntl.ioctl(s, 0x8913, name)[16] & 1)"),
      "127.0.0.1 1\n")
      << "as ifconfig asks";
  EXPECT_EQ(shell("getent services ssh | tr -s ' '; getent protocols tcp | cut -d' ' -f1"), "ssh 22/tcp\ntcp\n");
}

TEST_P(SandboxMachine, nothing_in_a_sandbox_changes_how_its_tests_report) {
  EXPECT_THAT(
      shell("cd /etc/tandem-report; for f in *; do (echo x > $f) 2> /dev/null || rm -rf $f 2> /dev/null || "
            "mv $f /tmp 2> /dev/null || echo $f stays; done"),
      testing::AllOf(HasSubstr("report.py stays"), HasSubstr("sitecustomize.py stays"), HasSubstr("bin stays")));
  EXPECT_EQ(shell("test -x /etc/tandem-report/bin/python3 && /usr/bin/python3 -c 'print(1)'"), "1\n");
}

TEST_P(SandboxMachine, a_home_of_its_own_lasts_and_is_never_collected) {
  shell("echo kept > ~/.kept; head -c 40000000 /dev/zero > ~/cache; git config --global user.name x; echo 1 > file");
  EXPECT_EQ(shell("cat ~/.kept; pwd; ls -A"), "kept\n/workspace\nfile\n");
  EXPECT_NE(shell("echo ~"), "/workspace\n");
  shell("rm -rf /tmp/*");
  EXPECT_EQ(shell("touch ~/.again && echo there"), "there\n");
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value());
  EXPECT_TRUE(collected->complete);
  EXPECT_THAT(collected->files, testing::ElementsAre(std::pair(std::string("file"), std::string("1\n"))));
}

TEST_P(SandboxMachine, programs_with_sanitizers_run) {
  if (!fs::exists("/usr/bin/g++") || CgroupPool::available().empty())
    GTEST_SKIP() << "no compiler, or no control groups";
  for (const char* kind : {"address", "thread", "undefined", "leak"}) {
    EXPECT_EQ(shell(std::string("echo 'int main() { return 0; }' > a.cpp; g++ -fsanitize=") + kind +
                    " a.cpp -o a && ./a && echo fine"),
              "fine\n");
  }
  EXPECT_THAT(shell("echo 'int main(int n, char**) { int* p = new int[n]; delete[] p; return p[0]; }' > a.cpp; "
                    "g++ -g -fsanitize=address a.cpp -o a && ./a"),
              HasSubstr("heap-use-after-free"));
}

TEST_P(SandboxMachine, files_beside_the_workspace_are_the_tasks) {
  spec_.links = {{"/app", "/workspace"}, {"/tests", "/tmp/tests"}, {"/data", "/tmp/outside/data"}};
  make();
  ASSERT_TRUE(sandbox_->put({{"a.txt", "1\n"}, {"/data/in/b.txt", "2\n"}}).ok());
  EXPECT_EQ(shell("cat /app/a.txt /data/in/b.txt; echo 3 > /data/c.txt; echo 4 > /tests/d.txt; cat /tests/d.txt"),
            "1\n2\n4\n");
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value());
  EXPECT_THAT(collected->files, testing::ElementsAre(std::pair(std::string("/data/c.txt"), std::string("3\n")),
                                                     std::pair(std::string("/data/in/b.txt"), std::string("2\n")),
                                                     std::pair(std::string("a.txt"), std::string("1\n"))));
}

class SandboxPlaces : public SandboxTest {};

TEST_F(SandboxPlaces, paths_of_a_task_are_mounts_and_no_links) {
  spec_.links = {{"/app", "/workspace"}, {"/tests", "/tmp/tests"}, {"/usr/src/app", "/workspace"}};
  make();
  ASSERT_TRUE(sandbox_->put({{"sub/a.txt", "1\n"}}).ok());
  EXPECT_EQ(shell("find /app -type f; cp -r /app /tmp/copy && ls /tmp/copy; cd /app && pwd; stat -c %F /app /tests; "
                  "cat /usr/src/app/sub/a.txt"),
            "/app/sub/a.txt\nsub\n/app\ndirectory\ndirectory\n1\n");
  EXPECT_EQ(call("read_file", {{"target_file", "/app/sub/a.txt"}}).output, "     1|1\n");
  EXPECT_FALSE(call("read_file", {{"target_file", "/app/../etc/passwd"}}).ok);
  EXPECT_EQ(shell("echo x > /app/b.txt; cat /workspace/b.txt; rm -rf /tmp/*; echo y > /tests/c; cat /tests/c"),
            "x\ny\n");
}

TEST_F(SandboxPlaces, they_come_back_with_a_snapshot) {
  spec_.links = {{"/app", "/workspace"}, {"/tests", "/tmp/tests"}};
  make();
  shell("cd /app; echo 1 > /app/a; echo 2 > /tests/b; echo 3 > ~/c");
  const auto snapshot = snapshot_of(*sandbox_);
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().to_string();
  auto again = begin_again(*backend_, spec_, *snapshot);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  sandbox_ = std::move(*again);
  EXPECT_EQ(shell("pwd; cat a /tests/b ~/c; ls /tests"), "/app\n1\n2\n3\nb\n");
}

}  // namespace
}  // namespace tandem::envs
