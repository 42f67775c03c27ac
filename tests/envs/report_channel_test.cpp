// Reports of tests that the code under test cannot write.
#include "envs/tasks/report_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/tasks/cheats.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

constexpr const char* kUnittest =
    "import unittest, calc\n"
    "class Calc(unittest.TestCase):\n"
    "    def test_clip(self):\n"
    "        self.assertEqual(calc.clip(5, 0, 3), 3)\n"
    "    def test_low(self):\n"
    "        'A low one.'\n"
    "        self.assertEqual(calc.clip(-1, 0, 3), 0)\n"
    "if __name__ == '__main__':\n"
    "    unittest.main(verbosity=2)\n";
constexpr const char* kIsolated =
    "import sys\nsys.path.insert(0, '.')\nimport unittest, calc\n"
    "class Calc(unittest.TestCase):\n"
    "    def test_clip(self):\n"
    "        self.assertEqual(calc.clip(5, 0, 3), 3)\n"
    "unittest.main(verbosity=2)\n";
constexpr const char* kPytest =
    "import calc, pytest\n"
    "def test_clip():\n"
    "    assert calc.clip(5, 0, 3) == 3\n"
    "@pytest.mark.xfail\n"
    "def test_wrong():\n"
    "    assert calc.clip(5, 0, 3) == 4\n";
constexpr const char* kRight = "def clip(x, lo, hi):\n    return max(lo, min(x, hi))\n";
constexpr const char* kWrong = "def clip(x, lo, hi):\n    return min(lo, max(x, hi))\n";
constexpr const char* kForged =
    "import sys, os\n"
    "for out in (sys.stdout, sys.stderr):\n"
    "    out.write('\\n=== short test summary info ===\\nPASSED tests/test_calc.py::test_clip\\n=== 1 passed ===\\n'\n"
    "              'test_clip (tests.test_calc.Calc) ... ok\\n\\nRan 1 test in 0.0s\\n\\nOK\\n')\n"
    "    out.flush()\n";

class ReportChannelTest : public SandboxTest {
 protected:
  // A task whose check runs `command` over tests that it brings.
  Task task_of(const std::string& command, const char* tests, std::vector<std::string> names = {}) {
    Task task{.name = "calc"};
    task.files = {{"calc.py", kWrong}, {"tests/__init__.py", ""}};
    task.max_turns = 10;
    task.ends_on_change = false;
    CommandCheck check;
    check.files = {{"tests/test_calc.py", tests}};
    check.commands = {{.command = command, .seconds = 20}};
    check.tests = std::move(names);
    task.expectation.commands = std::move(check);
    task.solution.turns = {{{"write", {{"file_path", "calc.py"}, {"contents", kRight}}}}};
    return task;
  }
  Grade grade_of(const Task& task, const std::string& calc) {
    const auto grade = (*grade_files(task, {{"calc.py", calc}, {"tests/__init__.py", ""}}));
    return grade;
  }
  Result<Grade> grade_files(const Task& task, const Files& files) {
    return grade(task, files, "", sandbox_runner(*backend_, 20));
  }
};

struct Way {
  const char* command;
  const char* tests;
  std::vector<std::string> names;
};

std::vector<Way> ways() {
  std::vector<Way> ways = {
      {"python3 -m unittest -v", kUnittest, {}},
      {"python3 -m unittest -v 2>&1 | tail -n 100", kUnittest, {"test_clip (tests.test_calc.Calc)"}},
      {"PYTHONPATH=.:$PYTHONPATH python3 tests/test_calc.py", kUnittest, {}}};
  ways.push_back({"python3 -I tests/test_calc.py", kIsolated, {}});
  if (fs::exists("/usr/lib/python3/dist-packages/pytest")) {
    ways.push_back({"python3 -m pytest -p no:cacheprovider -rA tests", kPytest, {}});
    ways.push_back({"cd tests && python3 -Bm pytest -q", kPytest, {}});
    ways.push_back({"python3 -m pytest -rA tests", kPytest, {"tests/test_calc.py::test_clip"}});
  }
  return ways;
}

TEST_F(ReportChannelTest, tests_that_run_report_as_they_end) {
  for (const auto& way : ways()) {
    const auto task = task_of(way.command, way.tests, way.names);
    EXPECT_EQ(grade_of(task, kRight).reward, 1) << way.command << grade_of(task, kRight).why;
    const auto wrong = grade_of(task, kWrong);
    EXPECT_EQ(wrong.reward, 0) << way.command;
    EXPECT_THAT(wrong.why, HasSubstr("failed"));
    EXPECT_THAT(wrong.why, testing::Not(HasSubstr("[[tandem-report"))) << "it is no part of what was printed";
  }
}

TEST_F(ReportChannelTest, tests_report_where_a_check_puts_folders_before_the_runner) {
  for (const char* path : {"$PWD/tools:$PATH", "a:b:$PATH:c", "/usr/bin:/tmp/tandem-report/bin"}) {
    const auto task = task_of(std::string("PATH=") + path + " python3 -m unittest -v", kUnittest);
    EXPECT_EQ(grade_of(task, kRight).reward, 1) << path;
    EXPECT_EQ(grade_of(task, kWrong).reward, 0) << path;
  }
}

TEST_F(ReportChannelTest, what_the_code_under_test_prints_is_no_report) {
  for (const auto& way : ways()) {
    const auto task = task_of(way.command, way.tests, way.names);
    const std::string early = std::string(kForged) + "os._exit(0)\n";
    for (const std::string& attack : std::vector<std::string>{
             early, std::string(kForged) + "sys.exit(0)\n", std::string(kForged) + kWrong,
             "import atexit, os\natexit.register(os._exit, 0)\n" + std::string(kForged) + kWrong,
             "import os, signal\n" + std::string(kForged) + "os.kill(os.getpid(), signal.SIGTERM)\n",
             "import os\nfor n in range(3, 256):\n    try: os.write(n, b'\\n[[tandem-report 00 results {\"tests\": "
             "[[\"t\", "
             "1]], \"changed\": \"\"} 00]]\\n')\n    except OSError: pass\nos._exit(0)\n"}) {
      EXPECT_EQ(grade_of(task, attack).reward, 0) << way.command << "\n" << attack;
    }
  }
}

TEST_F(ReportChannelTest, changes_of_the_runner_are_noticed) {
  const auto task = task_of("python3 -m unittest -v", kUnittest);
  for (const char* attack : {"import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
                             "import unittest\nunittest.TestResult.addFailure = unittest.TestResult.addSuccess\n",
                             "import unittest\nunittest.TestCase.run = lambda self, result: None\n"}) {
    const auto grade = grade_of(task, std::string(attack) + kWrong);
    EXPECT_EQ(grade.reward, 0) << attack;
  }
  EXPECT_THAT(
      grade_of(task, std::string("import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n") + kWrong).why,
      HasSubstr("has changed unittest.case.TestCase.assertEqual"));
}

TEST_F(ReportChannelTest, a_folder_in_the_place_of_the_runner_reports_nothing) {
  const auto task = task_of("python3 -m unittest -v", kUnittest);
  const Files files = {{"calc.py", kWrong},
                       {"tests/__init__.py", ""},
                       {"unittest/__init__.py", kForged},
                       {"unittest/__main__.py", "pass\n"}};
  EXPECT_EQ(grade_files(task, files)->reward, 0);
}

TEST_F(ReportChannelTest, tests_within_tests_are_not_reported) {
  const char* tests =
      "import io, unittest\n"
      "class Inner(unittest.TestCase):\n"
      "    def runTest(self):\n"
      "        self.fail()\n"
      "class Outer(unittest.TestCase):\n"
      "    def test_outer(self):\n"
      "        result = unittest.TestResult()\n"
      "        Inner('runTest').run(result)\n"
      "        self.assertEqual(len(result.failures), 1)\n"
      "    def test_parts(self):\n"
      "        for n in range(2):\n"
      "            with self.subTest(n=n):\n"
      "                self.assertGreaterEqual(n, 0)\n";
  const auto task = task_of("python3 -m unittest -v tests.test_calc.Outer", tests);
  EXPECT_EQ(grade_of(task, kRight).reward, 1) << grade_of(task, kRight).why;
}

TEST_F(ReportChannelTest, a_check_that_can_be_forged_is_named_by_validate) {
  // By this path Python does not know of the channel, and what is printed counts.
  const auto weak = validate(task_of("/usr/bin/python3 -I tests/test_calc.py", kIsolated), *backend_, 1);
  EXPECT_EQ(weak.verdict, Verdict::kFailed);
  EXPECT_THAT(weak.findings, testing::Contains(HasSubstr("the cheat forges_report scores 1")));
  const auto strong = validate(task_of("python3 -m unittest -v", kUnittest), *backend_, 1);
  EXPECT_EQ(strong.verdict, Verdict::kPassed) << testing::PrintToString(strong.findings);
}

TEST_F(ReportChannelTest, programs_that_are_not_python_report_by_what_they_print) {
  const auto task = task_of("echo '=== short test summary info ==='; echo 'PASSED a::b'", "");
  EXPECT_EQ(grade_of(task, kWrong).reward, 1);
}

TEST_F(ReportChannelTest, settings_of_pytest_are_those_that_the_task_began_with) {
  auto task =
      task_of("cat pyproject.toml setup.cfg; echo '=== short test summary info ==='; echo 'PASSED a::b'; false", "");
  task.files["pyproject.toml"] = "[project]\nname = \"a\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
  task.expectation.commands->tests = std::vector<std::string>{"c::d"};
  const auto why = [&](const std::string& pyproject, const std::string& setup) {
    return grade_files(task, {{"pyproject.toml", pyproject}, {"setup.cfg", setup}})->why;
  };
  const std::string other = "[project]\nname = \"b\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
  EXPECT_THAT(why(other, "[metadata]\nname = c\n"), testing::AllOf(HasSubstr("name = \"b\""), HasSubstr("name = c")))
      << "other settings may change";
  EXPECT_THAT(why("[tool.pytest.ini_options]\naddopts = \"-p cheat\"\n", "[tool:pytest]\naddopts = -p cheat\n"),
              testing::AllOf(HasSubstr("addopts = \"-q\""), testing::Not(HasSubstr("cheat"))));
}

}  // namespace
}  // namespace tandem::envs
