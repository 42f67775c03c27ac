// What scripts that grade call, and which lack of a program is one of the machine.
#include "envs/tasks/script_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/tasks/called_programs.h"

namespace tandem::envs {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(CalledPrograms, stand_where_a_shell_begins_a_command) {
  const auto called = called_by_shell(
      "#!/bin/bash\n# frob is a comment\nset -e; A=1 B=2 first x | second && third || fourth & fifth\n"
      "if sixth; then seventh; else eighth; fi\nout=$(ninth a \"$(tenth)\" | eleventh) && echo `twelfth`\n"
      "timeout -k 1 5 thirteenth x; flock /tmp/l fourteenth; find . -exec fifteenth {} \\;\n"
      "python3 -m sixteenth; bash -ec 'seventeenth y; eighteenth'; ( exec nineteenth ); ! twentieth\n"
      "echo 1 > /logs/reward.txt < input 2>&1; foo \\\n  argument; \"quoted\" a\n");
  for (const char* name :
       {"first",       "second",     "third",      "fourth",    "fifth",      "sixth",      "seventh",   "eighth",
        "ninth",       "tenth",      "eleventh",   "twelfth",   "thirteenth", "fourteenth", "fifteenth", "sixteenth",
        "seventeenth", "eighteenth", "nineteenth", "twentieth", "foo",        "quoted"})
    EXPECT_THAT(called, Contains(name));
  for (const char* name : {"frob", "x", "a", "y", "argument", "input", "/logs/reward.txt"})
    EXPECT_THAT(called, Not(Contains(name)));
}

TEST(CalledPrograms, of_texts_without_an_end_are_read_to_their_end) {
  for (const char* text :
       {"a $(b", "a \"b", "a 'b", "a `b", "a \\", "$", "${", "a ${b", "-c '", "<", ">(", "a $(b $(c"})
    (void)called_by_shell(text);
  EXPECT_THAT(called_by_shell("a $(b"), Contains("b"));
  std::string deep;
  for (int i = 0; i < 30000; ++i) deep += "$(";
  (void)called_by_shell(deep + "x");
  EXPECT_FALSE(may_be("${", "${", "x"));
  EXPECT_FALSE(may_be("$", "$", "x"));
}

TEST(CalledPrograms, are_what_variables_may_make_of_them) {
  const std::string text = "for v in 3.98 3.99; do python$v x; done\nP=no; ${P}pe x; ${Q:-other} y; \"$R\" z\n";
  EXPECT_TRUE(may_be("python$v", text, "python3.99"));
  EXPECT_FALSE(may_be("python$v", text, "python3.11"));
  EXPECT_TRUE(may_be("${P}pe", text, "nope"));
  EXPECT_TRUE(may_be("${Q:-other}", text, "other"));
  EXPECT_FALSE(may_be("$R", text, "anything"));
  EXPECT_TRUE(may_be("$HOME/.local/bin/uv", text, "/tmp/home/.local/bin/uv"));
  EXPECT_TRUE(may_be("~/.local/bin/uv", text, "/tmp/home/.local/bin/uv"));
  EXPECT_TRUE(may_be("/usr/bin/jq", text, "jq"));
}

TEST(CalledPrograms, of_functions_and_texts_in_place_are_read) {
  const std::string text =
      "run_it() { \"$@\"; }\nfunction f {\n first x\n}\nrun_it second . x\ncheck() { eval \"$2\"; }\n"
      "check \"has x\" \"third -e .x\"\ncat > a <<'END'\nIt's a note\nEND\nfourth x\nbash <<-E\n\tfifth\n\tE\n"
      "nice -n 10 timeout -k 5 30 sixth . x\ngrep -q <<< \"It's\" a; seventh\n(( x << 2 ))\neighth\n";
  const auto called = called_by_shell(text, functions_of(text));
  for (const char* name : {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"})
    EXPECT_THAT(called, Contains(name));
}

TEST(CalledPrograms, of_python_are_the_first_words_of_its_texts) {
  const auto called = called_by_python(
      "import subprocess  # it's a comment, \"frob\"\nsubprocess.run(['jq', '.', 'f'])\nos.system(f\"uv run {x}\")\n"
      "cmd = 'one . x'\nrun(\"\"\"\ncd /app\ntwo \\\"x\\\" y\n\"\"\")\nrun(['bash', '-c', 'three x'])\nX = {'a': "
      "\"four x\"}\nbroken = 'five\nsix = 'seven'\n");
  for (const char* name : {"jq", "uv", "one", "cd", "two", "three", "four", "five", "seven"})
    EXPECT_THAT(called, Contains(name));
  EXPECT_THAT(called, Not(Contains("frob")));
  for (const char* text : {"'", "\"\"\"", "\"\"\"a", "'a\\", "#", "'\\"}) (void)called_by_python(text);
}

std::string missing(const std::string& script, const std::string& output) {
  CommandCheck check;
  check.files["tandem-tests/test.sh"] = script;
  check.commands = {{.command = "bash /tests/test.sh"}};
  return missing_program(check, output, [](const std::string&) { return true; });
}

TEST(MissingProgram, is_told_by_whatever_was_to_start_it) {
  struct Case {
    const char* script;
    const char* output;
    const char* program;
  };
  for (const Case& one : {
           Case{"uvx pytest\n", "/tests/test.sh: line 1: uvx: command not found", "uvx"},
           Case{"( exec uvx x )\n", "/tests/test.sh: line 1: exec: uvx: not found", "uvx"},
           Case{"uvx x\n", "[test] check.sh: line 1: uvx: command not found", "uvx"},
           Case{"uvx x\n", "check.sh: 1: uvx: not found", "uvx"},
           Case{"$HOME/.local/bin/uv x\n", "/tests/test.sh: line 1: /tmp/home/.local/bin/uv: No such file or directory",
                "/tmp/home/.local/bin/uv"},
           Case{"/opt/j/bin/j x\n", "/tests/test.sh: line 1: /opt/j/bin/j: No such file or directory", "/opt/j/bin/j"},
           Case{"setsid -w uvx\n", "setsid: failed to execute uvx: No such file or directory", "uvx"},
           Case{"flock /tmp/l uvx\n", "flock: failed to execute uvx: No such file or directory", "uvx"},
           Case{"find . -exec uvx {} +\n", "find: \u2018uvx\u2019: No such file or directory", "uvx"},
           Case{"node -e 'require(\"child_process\").execFileSync(\"jqq\")'\n", "Error: spawnSync jqq ENOENT", "jqq"},
           Case{"perl -we 'system(\"jqq\", 1)'\n", "Can't exec \"jqq\": No such file or directory at -e line 1.",
                "jqq"},
           Case{"python3 -m pytest\n", "/usr/bin/python3: No module named pytest", "pytest"},
           Case{"python3 -c 'import subprocess; subprocess.run([\"jqq\"])'\n",
                "Traceback (most recent call last):\nFile \"<string>\", line 1, in <module>\n"
                "File \"/usr/lib/python3.11/subprocess.py\", line 1955, in _execute_child\n"
                "FileNotFoundError: [Errno 2] No such file or directory: 'jqq'",
                "jqq"},
       })
    EXPECT_EQ(missing(one.script, one.output), one.program) << one.script;
}

TEST(MissingProgram, that_the_check_does_not_call_is_none) {
  const std::string script =
      "#!/bin/bash\n# needs the program x, not pytest\nbash prog.sh | tee log1\necho 0 > /logs/verifier/reward.txt\n"
      "python3 /tests/t.py\n";
  for (const char* said :
       {"bash: line 1: reward: command not found", "xargs: reward: No such file or directory",
        "xargs: program: No such file or directory", "/usr/bin/env: \u2018program\u2019: No such file or directory",
        "/tests/test.sh: line 4: logs: command not found", "/usr/bin/python3: No module named pytest",
        "xargs: log1: No such file or directory", "sh: 1: verifier: not found"})
    EXPECT_EQ(missing(script, said), "") << said;
}

TEST(FailureOfScript, is_none_where_a_line_hands_the_file_to_another_program) {
  CommandCheck check;
  check.files = {{"tandem-tests/test.sh", "python3 /tests/t.py\n/tests/u.py\n"},
                 {"tandem-tests/t.py", ""},
                 {"tandem-tests/u.py", ""}};
  EXPECT_EQ(failure_of_script(check, "/tests/test.sh: line 1: /tests/t.py: Permission denied"), "");
  EXPECT_THAT(failure_of_script(check, "/tests/test.sh: line 2: /tests/u.py: Permission denied"),
              HasSubstr("no mode of a program"));
}

}  // namespace
}  // namespace tandem::envs
