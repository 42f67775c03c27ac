// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <sys/stat.h>

#include "base/clock.h"
#include "base/random.h"
#include "envs/tools/linters.h"
#include "envs/tools/process.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

class ReadLints : public Tools {
 protected:
  std::string lint(const Json& paths = Json::array()) { return call("read_lints", {{"paths", paths}}).output; }
  static bool installed(std::initializer_list<const char*> programs) {
    return std::any_of(programs.begin(), programs.end(), [](auto name) { return !find_program(name).empty(); });
  }
};

TEST_F(ReadLints, python_is_checked_and_findings_have_one_form) {
  scratch_.put("a.py", "import os\nprint(undefined)\n");
  scratch_.put("b.py", "def f(:\n    pass\n");
  if (installed({"ruff", "pyflakes3", "pyflakes"})) {
    EXPECT_THAT(lint({"a.py"}), testing::ContainsRegex("a.py:1:[0-9]+: warning: .*os.* imported but unused \\("));
    EXPECT_THAT(lint({"a.py"}), testing::ContainsRegex("a.py:2:7: error: [Uu]ndefined name .undefined. \\("));
    EXPECT_THAT(lint({"a.py"}), HasSubstr("2 problems in 1 file ("));
  }
  EXPECT_THAT(lint(), testing::ContainsRegex("b.py:1:[0-9]+: error: "));
  EXPECT_THAT(lint(), testing::ContainsRegex("problems? in 2 files \\("));
}

TEST_F(ReadLints, a_linter_that_waits_for_a_pipe_is_ended_by_the_limit_of_the_call) {
  if (!installed({"clang", "gcc"})) GTEST_SKIP() << "there is no compiler of C here";
  ASSERT_EQ(mkfifo((scratch_.path / "b.h").c_str(), 0600), 0);
  scratch_.put("a.c", "#include \"b.h\"\n");
  context_.time_limit_s = 0.5;
  EXPECT_THAT(lint({"a.c"}), testing::ContainsRegex("1 file could not be checked: (clang|gcc) took longer than 0.5"));
}

TEST_F(ReadLints, c_and_cpp_are_checked_with_headers_beside_them) {
  if (!installed({"clang", "gcc"}) || !installed({"clang++", "g++"})) GTEST_SKIP() << "no compiler is installed";
  scratch_.put("include/part.h", "#pragma once\nstruct Part { int size; };\n");
  scratch_.put("src/a.cpp", "#include \"part.h\"\nint main() {\n  Part part{1};\n  return part.sise;\n}\n");
  scratch_.put("c/b.c", "int f(int *restrict p) { return *p }\n");
  scratch_.put("c/b.h", "int f(int *restrict p);\n");
  const auto found = lint();
  EXPECT_THAT(found, testing::ContainsRegex("src/a.cpp:4:15: error: .*sise"));
  EXPECT_THAT(found, testing::ContainsRegex("c/b.c:1:[0-9]+: error: expected"));
  EXPECT_THAT(found, Not(HasSubstr("part.h:")));
  EXPECT_THAT(found, Not(HasSubstr("c/b.h:")));
  EXPECT_THAT(found, HasSubstr("2 problems in 4 files ("));
}

TEST_F(ReadLints, shell_javascript_and_yaml_are_checked_where_their_linters_are_installed) {
  scratch_.put("a.sh", "#!/bin/bash\nrm $1\n");
  scratch_.put("a.js", "let a = 1;\nlet x = ;\n");
  scratch_.put("a.yaml", "---\na: 1\na: 2\n");
  const auto found = lint();
  EXPECT_THAT(
      found,
      installed({"shellcheck"})
          ? HasSubstr("a.sh:2:4: note: Double quote to prevent globbing and word splitting. (shellcheck SC2086)")
          : HasSubstr("1 file of shell scripts was not checked: no linter for it is installed here (shellcheck)"));
  EXPECT_THAT(found, installed({"node"})
                         ? HasSubstr("a.js:2:9: error: SyntaxError: Unexpected token ';' (node --check)")
                         : HasSubstr("1 file of JavaScript was not checked"));
  EXPECT_THAT(found, installed({"yamllint"})
                         ? HasSubstr("a.yaml:3:1: error: duplication of key \"a\" in mapping (yamllint key-duplicates)")
                         : HasSubstr("1 file of YAML was not checked: no linter for it is installed here (yamllint)"));
}

TEST_F(ReadLints, clean_files_say_so_and_others_are_named) {
  scratch_.put("a.py", "print(1)\n");
  scratch_.put("notes.txt", "x\n");
  EXPECT_THAT(lint(), testing::StartsWith("No problems in 1 file ("));
  EXPECT_THAT(lint({"notes.txt", "a.py"}),
              HasSubstr("notes.txt was not checked: no linter is known for files of this type\nNo problems in 1 file"));
  EXPECT_THAT(lint({"nots.txt"}), HasSubstr("did you mean \"notes.txt\""));
  EXPECT_THAT(lint({"/etc"}), HasSubstr("outside the workspace"));
  EXPECT_THAT(lint("a.py"), HasSubstr("\"paths\" must be of type array, found string"));
  EXPECT_THAT(lint({3}), HasSubstr("\"paths[0]\" must be of type string, found integer"));
  fs::remove(scratch_.path / "a.py");
  EXPECT_EQ(lint(), "There are no files here that a linter is known for.");
}

TEST_F(ReadLints, ignored_files_are_left_out_unless_they_are_named) {
  fs::create_directory(scratch_.path / ".git");
  scratch_.put(".gitignore", "made/\n");
  scratch_.put("made/a.py", "def f(:\n");
  EXPECT_EQ(lint(), "There are no files here that a linter is known for.");
  EXPECT_THAT(lint({"made/a.py"}), HasSubstr("made/a.py:1:"));
}

class NewLints : public ReadLints {
 protected:
  void SetUp() override {
    ReadLints::SetUp();
    if (!installed({"git"}) || !installed({"ruff", "pyflakes3", "pyflakes"})) GTEST_SKIP() << "no git or no pyflakes";
  }
  void git(const std::string& arguments, const std::string& folder = ".") {
    const auto command = "cd '" + (scratch_.path / folder).string() +
                         "' && git -c user.name=a -c user.email=a@b -c init.defaultBranch=main " + arguments +
                         " >/dev/null 2>&1";
    ASSERT_EQ(system(command.c_str()), 0) << command;
  }
  std::string lint_new() { return call("read_lints", {{"only_new", true}}).output; }
};

TEST_F(NewLints, are_those_that_the_last_commit_did_not_have_wherever_they_moved) {
  scratch_.put("old.py", "import os\nprint(missing)\n");
  scratch_.put("same.py", "import sys\n");
  git("init && git add . && git -c user.name=a -c user.email=a@b commit -m one");
  EXPECT_THAT(lint_new(), HasSubstr("No new problems in 2 files ("));
  EXPECT_THAT(lint_new(), HasSubstr(" 3 problems were in the last commit already.\n"));
  scratch_.put("old.py", "\n\nimport os\nprint(missing)\nprint(other)\n");
  scratch_.put("new.py", "import re\n");
  const auto found = lint_new();
  EXPECT_THAT(found, HasSubstr("old.py:5:7: error: "));
  EXPECT_THAT(found, HasSubstr("new.py:1:"));
  EXPECT_THAT(found, Not(HasSubstr("missing")));
  EXPECT_THAT(found, Not(HasSubstr("same.py")));
  EXPECT_THAT(found, HasSubstr("2 new problems in 3 files ("));
  EXPECT_THAT(lint(), HasSubstr("5 problems in 3 files ("));
}

TEST_F(NewLints, one_more_of_a_kind_is_one_new_problem) {
  scratch_.put("a.py", "print(missing)\n");
  git("init && git add . && git -c user.name=a -c user.email=a@b commit -m one");
  scratch_.put("a.py", "print(missing)\nprint(1)\nprint(missing)\n");
  EXPECT_THAT(lint_new(), testing::StartsWith("a.py:3:7: error: "));
  EXPECT_THAT(lint_new(), HasSubstr("1 new problem in 1 file ("));
}

TEST_F(NewLints, of_a_repository_below_the_workspace_are_found_and_it_stays_as_it_is) {
  scratch_.put("part/a.py", "import os\n");
  git("init && git add . && git -c user.name=a -c user.email=a@b commit -m one", "part");
  scratch_.put("part/a.py", "import os\nimport re\n");
  scratch_.put("b.py", "import sys\n");
  const auto index = scratch_.get("part/.git/index");
  const auto found = lint_new();
  EXPECT_THAT(found, HasSubstr("part/a.py:2:"));
  EXPECT_THAT(found, HasSubstr("b.py:1:"));
  EXPECT_THAT(found, HasSubstr("2 new problems in 2 files ("));
  EXPECT_EQ(scratch_.get("part/.git/index"), index);
}

TEST_F(NewLints, a_file_of_the_commit_with_any_name_is_in_nobodys_way) {
  scratch_.put(".index", "mine\n");
  scratch_.put("index", "mine\n");
  scratch_.put("a.py", "import os\n");
  git("init && git add . && git -c user.name=a -c user.email=a@b commit -m one");
  scratch_.put("a.py", "import os\nimport re\n");
  EXPECT_THAT(lint_new(), testing::StartsWith("a.py:2:"));
}

TEST_F(NewLints, all_are_shown_where_there_is_nothing_to_compare_with) {
  scratch_.put("a.py", "import os\n");
  EXPECT_THAT(lint_new(),
              HasSubstr("Problems that are older are shown too: there is no git repository.\n1 problem in"));
  git("init");
  EXPECT_THAT(lint_new(), HasSubstr("Problems that are older are shown too: there is no commit yet.\n1 problem in"));
}

TEST_F(ReadLints, a_project_names_linters_of_its_own) {
  scratch_.put(".tandemlinters.json", R"({
    "spelling": {"files": ["*.md", "src/*.sh"],
                 "command": ["awk", "/teh/ {print FILENAME \":\" FNR \": error: spelled teh [T1]\"}"]},
    "long": {"files": ["*.md"], "command": ["awk", "{if (length > 9) print FILENAME \":\" FNR \":10: long line\"}"]}})");
  scratch_.put("docs/a.md", "one\nteh end of it\n");
  scratch_.put("src/b.sh", "#!/bin/sh\n# teh\n");
  scratch_.put("c.sh", "#!/bin/sh\n# teh\n");
  scratch_.put("d.txt", "teh\n");
  const auto found = lint();
  EXPECT_THAT(found, testing::StartsWith("docs/a.md:2:1: error: spelled teh (spelling T1)\n"
                                         "docs/a.md:2:10: warning: long line (long)\n"
                                         "src/b.sh:2:1: error: spelled teh (spelling T1)\n"));
  EXPECT_THAT(found, Not(HasSubstr("d.txt")));
  EXPECT_THAT(found, Not(HasSubstr("c.sh:2:")));
  EXPECT_THAT(lint({"docs/a.md"}), HasSubstr("2 problems in 1 file (long, spelling)."));
}

TEST_F(ReadLints, what_is_wrong_with_the_linters_of_a_project_is_said) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", ".tandemlinters.json must be an object"},
      {"{", ".tandemlinters.json: "},
      {R"({"a": {}})", "\"a\" needs command, a list"},
      {R"({"a": {"command": ["awk"], "files": []}})", "\"a\" needs files, a list"},
      {R"({"a": {"command": ["awk", 3], "files": ["*"]}})", "\"a\" has something in command that is no text"},
      {R"({"a": {"command": ["./lint"], "files": ["*"]}})", "must name an installed program, not a path"},
      {R"({"a": {"command": ["awk"], "files": ["[a"]}})", "\"a\" "},
      {R"({"a": {"comand": ["awk"], "files": ["*"]}})", "did you mean \"command\""},
  };
  for (const auto& [text, words] : wrong) {
    scratch_.put(".tandemlinters.json", text);
    const auto outcome = call("read_lints", Json::object());
    EXPECT_FALSE(outcome.ok);
    EXPECT_THAT(outcome.output, HasSubstr(words)) << text;
  }
  scratch_.put(".tandemlinters.json", R"({"a": {"command": ["no-such-linter"], "files": ["*.md"]}})");
  scratch_.put("a.md", "x\n");
  EXPECT_EQ(lint(), "1 file not checked by a: there is no program no-such-linter here\n");
}

TEST_F(ReadLints, more_than_two_hundred_files_are_refused) {
  for (int i = 0; i < 201; ++i) scratch_.put("f" + std::to_string(i) + ".py", "");
  EXPECT_THAT(lint(), HasSubstr("more than 200 files"));
}

TEST_F(ReadLints, a_linter_that_takes_too_long_is_ended_and_named) {
  if (!installed({"clang++", "g++"})) GTEST_SKIP() << "no compiler is installed";
  // Reading a pipe that nobody writes to, which compilers do without end.
  ASSERT_EQ(mkfifo((scratch_.path / "endless.h").c_str(), 0600), 0);
  scratch_.put("a.cpp", "#include \"endless.h\"\n");
  context_.time_limit_s = 0.5;
  const SystemClock clock;
  const Time start = clock.now();
  EXPECT_THAT(lint({"a.cpp"}), HasSubstr("1 file could not be checked: "));
  EXPECT_LT(to_seconds(clock.now() - start), 60);
}

TEST(Linters, what_linters_print_is_read_whether_they_are_installed_here_or_not) {
  struct Sample {
    const char *program, *output, *read;  // the findings as "PATH:LINE:COLUMN SEVERITY CODE MESSAGE;"
  };
  const Sample samples[] = {
      {"ruff", "./a.py:1:8: F401 [*] `os` imported but unused\n./a.py:2:1: F821 Undefined name `x`\nFound 2 errors.\n",
       "./a.py:1:8 warning F401 `os` imported but unused;./a.py:2:1 error F821 Undefined name `x`;"},
      {"ruff", "a.py:1:7: SyntaxError: Expected an identifier\n",
       "a.py:1:7 error  SyntaxError: Expected an identifier;"},
      {"pyflakes3", "./b.py:1:7: invalid syntax\ndef f(:\n      ^\n", "./b.py:1:7 error  invalid syntax;"},
      {"python3", "a.py:3:1: unexpected indent\n", "a.py:3:1 error  unexpected indent;"},
      {"g++",
       "./a.h:1:9: warning: #pragma once in main file\n./a.cpp: In function 'int main()':\n./a.cpp:2:27: error: 'y' "
       "was not "
       "declared in this scope\n./a.cpp:2:17: warning: unused variable 'x' [-Wunused-variable]\n./a.cpp:9:1: note: "
       "here\n",
       "./a.cpp:2:27 error  'y' was not declared in this scope;./a.cpp:2:17 warning -Wunused-variable unused variable "
       "'x';"},
      {"clang", "./a.c:1:10: fatal error: 'x.h' file not found\n", "./a.c:1:10 error  'x.h' file not found;"},
      {"shellcheck", "./a b.sh:2:4: note: Double quote. [SC2086]\n", "./a b.sh:2:4 note SC2086 Double quote.;"},
      {"yamllint", "./a.yaml:2:1: [error] duplication of key \"a\" in mapping (key-duplicates)\n",
       "./a.yaml:2:1 error key-duplicates duplication of key \"a\" in mapping;"},
      {"node", "/w/a.js:2\nlet x = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n    at wrapSafe\n",
       "/w/a.js:2:9 error  SyntaxError: Unexpected token ';';"},
      {"shellcheck", "openBinaryFile: does not exist\n", ""}};
  for (const auto& sample : samples) {
    std::string read;
    bool known = false;
    for (const auto& language : lint_languages()) {
      for (const auto& linter : language.linters) {
        if (known || linter.program != sample.program) continue;
        known = true;
        for (const auto& lint : linter.read(sample.output)) {
          read += lint.path + ":" + std::to_string(lint.line) + ":" + std::to_string(lint.column) + " " +
                  lint.severity + " " + lint.code + " " + lint.message + ";";
        }
      }
    }
    EXPECT_EQ(read, sample.read) << sample.program;
  }
}

TEST_F(ReadLints, any_output_of_a_linter_is_read_without_a_crash) {
  const std::string pieces[] = {"./a.py",   ":",          "1",       "99999999999999999999",
                                " error: ", " warning: ", "[",       "]",
                                "(",        ")",          " ",       "^",
                                "F401",     "\n",         "Error: ", "/",
                                "\xff"};
  Random random(6);
  for (int round = 0; round < 5'000; ++round) {
    std::string output;
    for (uint64_t i = random.below(20); i > 0; --i) output += random.pick(pieces);
    for (const auto& language : lint_languages()) {
      for (const auto& linter : language.linters) {
        for (const auto& lint : linter.read(output)) EXPECT_TRUE(lint.line > 0 && lint.column > 0) << output;
      }
    }
  }
}

TEST_F(SandboxTest, linters_run_in_the_sandbox) {
  ASSERT_TRUE(
      sandbox_->put({{"a.py", "def f(:\n"}, {"a.cpp", "int f() { return 1 }\n"}, {"a.js", "let x = ;\n"}}).ok());
  const auto outcome = call("read_lints", Json::object());
  EXPECT_THAT(outcome.output, HasSubstr("a.py:1:"));
  if (!find_program("g++").empty()) {
    EXPECT_THAT(outcome.output, testing::ContainsRegex("a.cpp:1:[0-9]+: error: expected"));
  }
  if (!find_program("node").empty()) {
    EXPECT_THAT(outcome.output, HasSubstr("a.js:1:9: error: SyntaxError"));
  }
  EXPECT_FALSE(outcome.changed_files);
  EXPECT_EQ(shell("ls -A"), "a.cpp\na.js\na.py\n");
}

}  // namespace
}  // namespace tandem::envs
