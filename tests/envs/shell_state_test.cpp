// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include "envs/tools/shell_state.h"

#include "base/clock.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class PersistentShell : public Tools {
 protected:
  PersistentShell() { context_.session = &session_; }
  std::string shell(const std::string& command) { return call("run_terminal_cmd", {{"command", command}}).output; }
  Session session_;
};

TEST_F(PersistentShell, the_folder_and_exported_variables_are_kept_between_calls) {
  fs::create_directories(scratch_.path / "a/b c");
  EXPECT_EQ(shell("cd 'a/b c' && export X=1 Y='two\nlines'; z=3"), "[no output]\n");
  EXPECT_EQ(shell("pwd; echo \"$X $Y $z.\"; cd -"),
            (scratch_.path / "a/b c").string() + "\n1 two\nlines .\n" + scratch_.path.string() + "\n");
  EXPECT_EQ(shell("pwd; unset X"), scratch_.path.string() + "\n");
  EXPECT_EQ(shell("echo \"[$X]\""), "[]\n");
  EXPECT_EQ(call("run_terminal_cmd", {{"command", "cd a; false"}}).exit_code, 1);
  EXPECT_EQ(shell("basename \"$PWD\""), "a\n");
}

TEST_F(PersistentShell, what_is_not_exported_ends_with_its_command) {
  EXPECT_EQ(shell("x=1; f() { echo hi; }; set -e; alias l=ls; umask 077; cd ."), "[no output]\n");
  EXPECT_EQ(shell("false; echo \"[$x]\"; umask; type f 2>&1 | head -1"),
            "[]\n0022\n" + std::string(find_program("bash")) + ": line 1: type: f: not found\n");
}

TEST_F(PersistentShell, a_killed_command_leaves_the_shell_as_it_was_before) {
  fs::create_directories(scratch_.path / "a/b");
  shell("cd a; export X=1");
  EXPECT_EQ(shell("cd b; export X=2; kill -9 $$"), "[exit code 137]\n");
  EXPECT_EQ(shell("echo $X; basename $PWD"), "1\na\n");
  context_.time_limit_s = 0.5;
  EXPECT_THAT(shell("cd b; export X=3; sleep 60"), HasSubstr("time limit"));
  context_.time_limit_s = 20;
  EXPECT_EQ(shell("echo $X; basename $PWD"), "1\na\n");
  EXPECT_EQ(shell("cd b; exec true"), "[no output]\n");
  EXPECT_EQ(shell("basename $PWD"), "a\n");
}

TEST_F(PersistentShell, a_folder_that_is_gone_is_told_and_the_shell_goes_on_in_the_workspace) {
  shell("mkdir a && cd a");
  fs::remove(scratch_.path / "a");
  EXPECT_EQ(shell("pwd"), "[" + (scratch_.path / "a").string() + " is not there any more; this ran in /workspace]\n" +
                              scratch_.path.string() + "\n");
  EXPECT_EQ(shell("pwd"), scratch_.path.string() + "\n");
}

TEST_F(PersistentShell, the_bytes_of_a_command_are_those_of_a_bare_shell) {
  fs::create_directories(scratch_.path / "sub");
  for (const std::string& command :
       {std::string("cd sub; nosuchprogram"), std::string("cd nowhere"), std::string("x=1; echo $x; exit 3"),
        std::string("cd sub\nfi"), std::string("cd 'sub"), std::string("cd sub; ls /proc/self/fd | wc -l"),
        std::string("export A=1; env | grep -v -E '^_=' | sort"), std::string("set -eu; echo $undefined; echo late"),
        std::string("set -x; cd sub; true"), std::string("cd sub; cat; read line; echo \"[$line]\""),
        std::string("cd sub; echo out; echo err >&2; false"), std::string("cat <<END\na=1\nEND\n"),
        std::string("cd sub; echo $SHLVL $- $0 $#; (exit 4)"), std::string("set -C; cd sub; false"),
        std::string("unset PATH; ls"), std::string("cd sub; kill -TERM $$; echo late"), std::string("eval 'exit 7'")}) {
    session_ = {};
    ProcessSpec bare;
    bare.argv = {find_program("bash"), "--noprofile", "--norc", "-c", command};
    bare.directory = scratch_.path;
    bare.environment = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                        "HOME=" + scratch_.path.string(),
                        "LANG=C.UTF-8",
                        "TERM=dumb",
                        "PAGER=cat",
                        "PYTHONDONTWRITEBYTECODE=1"};
    const auto expected = run_process(bare);
    ASSERT_TRUE(expected.has_value());
    const auto outcome = call("run_terminal_cmd", {{"command", command}});
    EXPECT_EQ(outcome.exit_code, expected->exit_code) << command;
    EXPECT_TRUE(outcome.output.starts_with(expected->output)) << command << "\n" << outcome.output << expected->output;
  }
}

TEST_F(PersistentShell, a_shell_in_posix_mode_still_runs_commands) {
  shell("export POSIXLY_CORRECT=1");
  EXPECT_EQ(shell("cd .; cat; echo $POSIXLY_CORRECT"), "1\n");
}

TEST_F(PersistentShell, variables_of_any_bytes_are_kept_and_too_many_are_not) {
  shell("export X=$'\\xff\\x01='");
  EXPECT_EQ(shell("printf %s \"$X\" | od -An -tx1"), " ff 01 3d\n");
  const auto before = session_;
  shell("for i in $(seq 20); do export V$i=$(head -c 100000 /dev/zero | tr '\\0' x); done");
  EXPECT_TRUE(session_ == before);
  EXPECT_EQ(shell("echo still"), "still\n");
}

TEST(MayChangeShell, sees_builtins_and_assignments_and_leaves_plain_commands_alone) {
  for (const char* command :
       {"cd a", "a && cd b", "export X", "X=1", "PATH+=:/x", ". ./env", "source env", "eval \"$x\"", "(cd a)",
        "pushd x", "unset HOME", "set -a", "read line", ": ${X:=1}", "a;.\tb"}) {
    EXPECT_TRUE(may_change_shell(command)) << command;
  }
  for (const char* command : {"ls", "cat a.txt", "python3 a.py", "echo abcd", "ls . ..", "grep -n cdx a", "./a .",
                              "a | b", "echo 1 >= 2", "find . -name '*.c'", "wc -l a.b", ""}) {
    EXPECT_FALSE(may_change_shell(command)) << command;
  }
}

TEST_F(SandboxTest, keeping_the_shell_leaves_no_file_behind) {
  shell("cd .; export X=1");
  shell("cd .; kill -9 $$");
  shell("cd .; exec true");
  EXPECT_EQ(shell("ls -A . /tmp /dev/shm"), ".:\n\n/dev/shm:\n\n/tmp:\nhome\n");
}

TEST_F(SandboxTest, the_shell_goes_on_where_the_last_command_of_the_sandbox_left_it) {
  EXPECT_EQ(shell("mkdir a; cd a; export X=1"), "[no output]\n");
  EXPECT_EQ(shell("pwd; echo $X"), "/workspace/a\n1\n");
  EXPECT_TRUE(call("run_terminal_cmd", {{"command", "pwd > where; exec sleep 72"}, {"is_background", true}}).ok);
  const std::string background = "cat /proc/*/cmdline | tr '\\0' '\\n' | grep -E '^72$'";
  EXPECT_TRUE(within(30s, [&] { return shell("cat where; " + background) == "/workspace/a\n72\n"; }));
  call("write", {{"file_path", "b.txt"}, {"contents", "x\n"}});
  EXPECT_EQ(shell("ls .. /tmp; " + background), "..:\na\nb.txt\n\n/tmp:\nhome\n72\n");
  make();
  EXPECT_EQ(shell("pwd; echo [$X]"), "/workspace\n[]\n");
}

}  // namespace
}  // namespace tandem::envs
