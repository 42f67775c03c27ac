#include "envs/episodes/deletion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "envs/episodes/validate.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModule = R"("""A module."""
import functools


def twice(x: int, *, by=2) -> int:
    """Two times x."""

    # A comment that could tell.
    y = x * by
    return y  # done


def never_called(x):
    """Nobody tests this."""
    return x


class Box:
    def __init__(self):
        self.items = []

    @functools.lru_cache(maxsize=None)
    def size(self):
        """How many.

        Of all.
            With an indented line.
        """
        return len(self.items)

    @property
    def both(self):
        "Twice."
        return 1

    @both.setter
    def both(self, value):
        "Twice."
        self.items = value

    def later(self):
        """Not yet."""
        raise NotImplementedError()

    def short(self): "On one line."; return 1

    async def wait(self):
        x = "é"; return x
)";
constexpr const char* kTests =
    "import unittest\nfrom pkg.mod import Box, twice\n\nclass T(unittest.TestCase):\n"
    "    def test_twice(self):\n        self.assertEqual(twice(2), 4)\n"
    "    def test_size(self):\n        self.assertEqual(Box().size(), 0)\n"
    "    def test_broken(self):\n        self.fail()\n";

class Deletion : public SandboxTest {
 protected:
  Deletion() {
    files_ = {{"pkg/mod.py", kModule},   {"pkg/__init__.py", ""},    {"tests/test_mod.py", kTests},
              {"tests/__init__.py", ""}, {"broken.py", "def f(:\n"}, {"latin.py", "x = '\xe9'\n"},
              {"run.sh", "echo\n"}};
  }
  Result<TestedRepository> tested(const std::string& command = "python3 -m unittest -v") {
    return test_repository(files_, {"run.sh"}, command, *backend_);
  }
  std::vector<PythonFunction> functions() {
    const auto found = find_functions(files_, *backend_);
    EXPECT_TRUE(found.has_value()) << found.error().to_string();
    return found.value_or(std::vector<PythonFunction>());
  }
  PythonFunction function(const std::string& name) {
    for (auto& each : functions()) {
      if (each.name == name) return each;
    }
    ADD_FAILURE() << "there is no function " << name;
    return {};
  }
  Files files_;
  Scratch scratch_;
};

TEST_F(Deletion, functions_with_a_body_to_lose_are_found) {
  std::vector<std::string> names;
  for (const auto& each : functions()) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("twice", "never_called", "Box.__init__", "Box.size", "Box.wait"));
  EXPECT_EQ(function("twice").signature, "def twice(x: int, *, by=2) -> int");
  EXPECT_EQ(function("twice").docstring, "Two times x.");
  EXPECT_EQ(function("Box.size").signature, "@functools.lru_cache(maxsize=None)\ndef size(self)");
  EXPECT_EQ(function("Box.size").docstring, "How many.\n\nOf all.\n    With an indented line.");
  EXPECT_EQ(function("Box.wait").docstring, "");
}

TEST_F(Deletion, a_body_goes_with_its_comments_and_the_docstring_stays) {
  const auto without = without_body(kModule, function("twice"));
  EXPECT_THAT(without, HasSubstr("    \"\"\"Two times x.\"\"\"\n    raise NotImplementedError\n\n\ndef never_called"));
  EXPECT_THAT(without, testing::Not(HasSubstr("comment that could tell")));
  EXPECT_THAT(without_body(kModule, function("Box.wait")),
              HasSubstr("    async def wait(self):\n        raise NotImplementedError\n"));
}

TEST_F(Deletion, the_tests_that_miss_a_function_are_named) {
  const auto repository = tested();
  ASSERT_TRUE(repository.has_value()) << repository.error().to_string();
  EXPECT_THAT(repository->tests, ElementsAre("test_size (tests.test_mod.T)", "test_twice (tests.test_mod.T)"));
  EXPECT_THAT(*tests_that_miss(*repository, function("twice"), *backend_),
              ElementsAre("test_twice (tests.test_mod.T)"));
  EXPECT_THAT(*tests_that_miss(*repository, function("never_called"), *backend_), ElementsAre());
}

TEST_F(Deletion, a_task_is_written_that_passes) {
  const auto repository = tested();
  const auto size = function("Box.size");
  ASSERT_TRUE(write_repository(scratch_.path / "set", *repository).ok());
  const auto written = write_task(scratch_.path / "set", *repository, size);
  ASSERT_TRUE(written.ok()) << written.to_string();
  const auto set = TaskSet::read(scratch_.path / "set");
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  const auto* task = set->find("pkg.mod-Box.size");
  ASSERT_NE(task, nullptr);
  EXPECT_THAT(task->instruction, HasSubstr("The function Box.size in pkg/mod.py has lost its body."));
  EXPECT_THAT(task->instruction, HasSubstr("        With an indented line.\n"));
  EXPECT_THAT(task->files.at("pkg/mod.py"), testing::Not(HasSubstr("len(self.items)")));
  EXPECT_TRUE(task->programs.contains("run.sh"));
  const auto v = validate(*task, *backend_, 2);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(Deletion, whatever_stands_in_a_docstring_comes_back_from_the_file) {
  const auto repository = tested();
  ASSERT_TRUE(write_repository(scratch_.path / "set", *repository).ok());
  auto odd = function("twice");
  for (const char* docstring :
       {"- a: b # c\n---\n...\n%YAML 1.2\n\n    'x' \"y\" \\n {z} [w] & * ! | > @ `", "a\ttab and \x7f",
        "é ü 漢 \xf0\x9f\x98\x80 \xe2\x80\xa8", "   first", "spaces   \nmore"}) {
    odd.docstring = docstring;
    const auto written = write_task(scratch_.path / "set", *repository, odd);
    ASSERT_TRUE(written.ok()) << written.to_string();
    const auto set = TaskSet::read(scratch_.path / "set");
    ASSERT_TRUE(set.has_value()) << set.error().to_string();
    const auto first = split(docstring, '\n')[0];
    EXPECT_THAT(set->tasks()[0].instruction, HasSubstr("    " + std::string(first) + "\n"));
  }
}

TEST_F(Deletion, tests_that_are_not_reported_are_told_with_what_they_printed) {
  const auto silent = tested("python3 -m unittest");
  ASSERT_FALSE(silent.has_value());
  EXPECT_THAT(silent.error().to_string(), HasSubstr("Ran 3 tests"));
  EXPECT_THAT(silent.error().to_string(), HasSubstr("python3 -m unittest -v"));
  EXPECT_THAT(tested("echo 'a (b.c) ... ok'; kill -9 $BASHPID").error().message(), HasSubstr("reports no test"));
}

}  // namespace
}  // namespace tandem::envs
