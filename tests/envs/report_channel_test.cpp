// Reports of tests that the code under test cannot write.
#include "envs/tasks/report_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/sandbox/root_contents.h"
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
  for (const char* path : {"$PWD/tools:$PATH", "a:b:$PATH:c", "/usr/bin:/tmp/tandem-report/bin", "/usr/bin"}) {
    const auto task = task_of(std::string("PATH=") + path + " python3 -m unittest -v", kUnittest);
    EXPECT_EQ(grade_of(task, kRight).reward, 1) << path;
    EXPECT_EQ(grade_of(task, kWrong).reward, 0) << path;
  }
}

// The system's Python knows of the channel by itself.
TEST_F(ReportChannelTest, tests_report_whatever_variables_and_options_their_command_sets) {
  if (python_starts().empty()) GTEST_SKIP() << "the system's Python has no start of its own";
  for (const char* command :
       {"PYTHONPATH=. python3 -m unittest -v", "PYTHONPATH=src:. python3 -Bmunittest -v",
        "env PYTHONPATH=. python3 -m unittest -v", "/usr/bin/python3 -I -m unittest -v",
        "/usr/bin/python3 -E -m unittest -v", "python3 -IBs -m unittest -v", "env -i python3 -m unittest -v",
        "timeout 15 /usr/bin/python3 -I -m unittest",
        "unset PYTHONPATH; /usr/bin/python3 -c 'import unittest; unittest.main(\"tests.test_calc\", verbosity=2)'",
        "ln -s /usr/bin/python3 /tmp/other; env -i /tmp/other -X utf8 -m unittest -v"}) {
    const auto task = task_of(command, kUnittest);
    const auto right = grade_files(task, {{"calc.py", kRight}, {"tests/__init__.py", ""}});
    ASSERT_TRUE(right.has_value()) << command << "\n" << right.error().message();
    EXPECT_EQ(right->reward, 1) << command << "\n" << right->why;
    EXPECT_EQ(grade_of(task, kWrong).reward, 0) << command;
    EXPECT_EQ(grade_of(task, std::string(kForged) + "os._exit(0)\n").reward, 0) << command;
    EXPECT_EQ(grade_of(task, std::string(kForged) + "sys.exit(0)\n").reward, 0) << command;
  }
}

TEST_F(ReportChannelTest, a_run_of_pythons_tests_that_nobody_hears_of_gives_no_verdict) {
  for (const char* command : {"python3 -S -m unittest -v", "/usr/bin/python3 -IS -m unittest -v",
                              "/usr/bin/python3 -S -c 'import sys; sys.path.insert(0, \".\"); import unittest; "
                              "unittest.main(\"tests.test_calc\", verbosity=2)'"}) {
    const auto task = task_of(command, kUnittest);
    for (const std::string& calc : {std::string(kRight), std::string(kForged) + "os._exit(0)\n"}) {
      const auto grade = grade_files(task, {{"calc.py", calc}, {"tests/__init__.py", ""}});
      ASSERT_FALSE(grade.has_value()) << command;
      EXPECT_THAT(grade.error().message(),
                  testing::AllOf(HasSubstr(command), HasSubstr("tests did not report to the grader")));
    }
  }
  auto task = task_of("bash run.sh", kUnittest);
  task.expectation.commands->files["run.sh"] = "exec python3 -S -m unittest -v\n";
  EXPECT_FALSE(grade_files(task, {{"calc.py", kRight}, {"tests/__init__.py", ""}}).has_value()) << "by a script";
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

TEST_F(ReportChannelTest, changes_of_a_test_and_of_what_builds_it_are_noticed) {
  const auto task = task_of("python3 -m unittest -v", kUnittest);
  const std::string builds =
      "import builtins\n"
      "old = builtins.__build_class__\n"
      "def build(*a, **k):\n"
      "    made = old(*a, **k)\n"
      "    for name in list(vars(made)):\n"
      "        if name.startswith('test'): setattr(made, name, lambda self: None)\n";
  const std::string finds =
      "import sys\n"
      "def clip(*a):\n"
      "    test = sys._getframe(1).f_locals['self']\n";
  const std::string threads =
      "import sys, threading, time\n"
      "def change():\n"
      "    while not hasattr(sys.modules.get('tests.test_calc'), 'Calc'): time.sleep(0.0001)\n"
      "    for name in ('test_clip', 'test_low'): setattr(sys.modules['tests.test_calc'].Calc, name, lambda s: None)\n"
      "def clip(*a): return 0\n";
  for (const auto& [attack, why] : std::vector<std::pair<std::string, std::string>>{
           {builds + "    return made\nbuiltins.__build_class__ = build\n", "builtins.__build_class__"},
           {builds + "    builtins.__build_class__ = old\n    return made\nbuiltins.__build_class__ = build\n",
            "tests.test_calc.Calc.test_clip"},
           {finds + "    test._getAssertEqualityFunc = lambda *a: lambda *b, **k: None\n", "_getAssertEqualityFunc"},
           {finds + "    test.addTypeEqualityFunc(int, lambda *b, **k: None)\n", "_type_equality_funcs"},
           {finds + "    type(test).assertEqual = lambda *b, **k: None\n", "Calc.assertEqual"},
           {"import unittest\ndef same(self, a, b, msg=None): pass\n"
            "unittest.TestCase.assertEqual.__code__ = same.__code__\n",
            "unittest.case.TestCase.assertEqual"},
           {threads + "worker = threading.Thread(target=change, daemon=True)\n"
                      "worker.start()\nsys.setswitchinterval(1e-6)\n",
            ""}}) {
    const auto grade = grade_of(task, attack + (attack.find("def clip") == std::string::npos ? kWrong : ""));
    EXPECT_EQ(grade.reward, 0) << attack;
    EXPECT_THAT(grade.why, HasSubstr(why.empty() ? "" : "has changed " + why)) << attack;
  }
}

TEST_F(ReportChannelTest, what_comes_into_pytest_late_is_noticed) {
  if (!fs::exists("/usr/lib/python3/dist-packages/pytest")) GTEST_SKIP() << "no pytest";
  const auto task = task_of("PYTHONPATH=. python3 -m pytest -rA tests", kPytest);
  EXPECT_EQ(grade_of(task, kRight).reward, 1) << grade_of(task, kRight).why;
  const std::string plugin =
      "import gc, pytest\n"
      "from _pytest.config import Config\n"
      "class Plugin:\n"
      "    @pytest.hookimpl(tryfirst=True)\n"
      "    def pytest_pyfunc_call(self, pyfuncitem): return True\n"
      "    @pytest.hookimpl(tryfirst=True)\n"
      "    def pytest_runtest_makereport(self, item, call): call.excinfo = None\n"
      "def register():\n"
      "    for one in gc.get_objects():\n"
      "        if type(one) is Config: one.pluginmanager.register(Plugin())\n";
  for (const std::string& attack :
       {plugin + "register()\n" + kWrong, plugin + "def clip(*a):\n    register()\n    return 0\n",
        "import _pytest.reports as reports\n"
        "old = reports.TestReport.from_item_and_call.__func__\n"
        "def made(kind, item, call):\n"
        "    call.excinfo = None\n"
        "    return old(kind, item, call)\n"
        "reports.TestReport.from_item_and_call = classmethod(made)\n" +
            std::string(kWrong)}) {
    const auto grade = grade_of(task, attack);
    EXPECT_EQ(grade.reward, 0) << attack;
    EXPECT_THAT(grade.why, HasSubstr("has changed")) << attack;
  }
}

TEST_F(ReportChannelTest, what_authors_of_tests_do_is_no_change) {
  const char* tests =
      "import unittest, calc\n"
      "from unittest import mock\n"
      "class Base:\n"
      "    def test_inherited(self):\n"
      "        self.assertEqual(self.value, 1)\n"
      "class Calc(Base, unittest.TestCase):\n"
      "    value = 1\n"
      "    def setUp(self):\n"
      "        self.id = 'a name'\n"
      "        self.addTypeEqualityFunc(int, self.assertInts)\n"
      "    def assertInts(self, a, b, msg=None):\n"
      "        self.assertTrue(a == b, msg)\n"
      "    def assertEqual(self, a, b, msg=None):\n"
      "        super().assertEqual(a, b, msg)\n"
      "    def test_often(self):\n"
      "        for number in range(3000):\n"
      "            self.assertEqual(calc.clip(number, 0, 3000), number)\n"
      "    @mock.patch('builtins.zip')\n"
      "    def test_stand_in(self, stand_in):\n"
      "        self.assertTrue(stand_in)\n"
      "    def test_again(self):\n"
      "        self.fail()\n"
      "    def test_again(self):\n"
      "        pass\n"
      "    test_renamed = test_again\n"
      "class Later(unittest.IsolatedAsyncioTestCase):\n"
      "    async def test_later(self):\n"
      "        self.assertEqual(calc.clip(5, 0, 3), 3)\n"
      "def made(self):\n"
      "    pass\n"
      "Calc.test_made = made\n";
  const auto grade = grade_of(task_of("python3 -m unittest -v", tests), kRight);
  EXPECT_EQ(grade.reward, 1) << grade.why;
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
  // What a runner of the author's own prints counts. That it captures prints, as pytest does, is no help: it
  // prints by a descriptor that it keeps, in the midst of a line.
  const char* runner =
      "import os, sys\n"
      "kept = os.dup(1)\n"
      "nothing = os.open('/dev/null', os.O_WRONLY)\n"
      "os.dup2(nothing, 1), os.dup2(nothing, 2)\n"
      "sys.path.insert(0, '.')\n"
      "os.write(kept, b'collecting ... ')\n"
      "import calc\n"
      "end = b'PASSED' if calc.clip(5, 0, 3) == 3 else b'FAILED'\n"
      "os.write(kept, b'\\n=== short test summary info ===\\n' + end + b' a::b\\n')\n";
  for (const std::vector<std::string>& names : {std::vector<std::string>(), std::vector<std::string>{"a::b"}}) {
    const auto weak = validate(task_of("python3 -I tests/test_calc.py", runner, names), *backend_, 1);
    EXPECT_EQ(weak.verdict, Verdict::kFailed);
    EXPECT_THAT(weak.findings, testing::Contains(HasSubstr("the cheat forges_report scores 1")));
  }
  const auto strong = validate(task_of("python3 -m unittest -v", kUnittest), *backend_, 1);
  EXPECT_EQ(strong.verdict, Verdict::kPassed) << testing::PrintToString(strong.findings);
}

TEST_F(ReportChannelTest, a_run_of_unittest_that_finds_no_test_says_so) {
  const auto task = task_of("python3 -m unittest -v tests.test_calc", "import calc\ndef test_clip():\n    pass\n");
  const auto grade = grade_of(task, kRight);
  EXPECT_EQ(grade.reward, 0);
  EXPECT_THAT(grade.why, HasSubstr("no tests were reported"));
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
