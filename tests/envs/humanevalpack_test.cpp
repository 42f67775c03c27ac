#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

// Lines in the form of the data set, of functions that are not in it.
Json python_row() {
  return {{"task_id", "Python/900"},
          {"entry_point", "scale"},
          {"declaration",
           "from typing import List\n\n\ndef half(x):\n    return x / 2\n\n\ndef scale(xs: List[float], by: int) -> "
           "list:\n"},
          {"canonical_solution", "    return [x * by for x in xs]\n"},
          {"buggy_solution", "    return [x + by for x in xs]\n"},
          {"docstring", "Multiply every number.\n>>> scale([1, 2], 3)\n[3, 6]"},
          {"example_test", "def check(scale):\n    assert scale([1, 2], 3) == [3, 6]\ncheck(scale)\n"},
          {"test",
           "def check(scale):\n    import random\n    assert scale([1, 2], 3) == [3, 6]\n"
           "    assert scale([], 3) == []\n    assert scale(xs=[half(3.0)], by=2) == [3.0]\n"
           "    for _ in range(20):\n        n = random.randint(0, 99)\n        assert scale([n, 'a'], 2) == [2 * n, "
           "'aa']\n"
           "check(scale)\n"}};
}
Json cpp_row() {
  return {
      {"task_id", "CPP/900"},
      {"entry_point", "scale"},
      {"declaration",
       "#include<vector>\nusing namespace std;\nint half(int x){\n    return x/2;\n}\n"
       "vector<int> scale(vector<int> xs, int by){\n"},
      {"canonical_solution", "    for (int& x : xs) x *= by;\n    return xs;\n}\n"},
      {"buggy_solution", "    for (int& x : xs) x += by;\n    return xs;\n}\n"},
      {"docstring", "Multiply every number."},
      {"example_test", "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (scale({1}, 3)[0] == 3);\n}\n"},
      {"test",
       "#undef NDEBUG\n#include<assert.h>\nbool issame(vector<int> a, vector<int> b){\n    return a == b;\n}\n"
       "int main(){\n    assert (issame(scale({1, 2}, 3), {3, 6}));\n    assert (scale({half(9)}, 2)[0] == 8);\n}\n"}};
}

class HumanEvalPack : public SandboxTest {
 protected:
  void put(const std::vector<Json>& rows) {
    std::string text;
    for (const auto& row : rows) text += row.dump() + "\n";
    scratch_.put("tasks.jsonl", text);
  }
  Task only_task(const Json& row) {
    put({row});
    const auto set = TaskSet::read(scratch_.path / "tasks.jsonl");
    EXPECT_TRUE(set.has_value()) << set.error().to_string();
    return set ? set->tasks()[0] : Task();
  }
  double reward_of(const Task& task, const std::string& content) {
    const auto episode = *Episode::open(task, *backend_);
    const auto& path = task.files.rbegin()->first;
    EXPECT_TRUE(episode->call("write", {{"file_path", path}, {"contents", content}})->ok);
    const auto grade = episode->score("");
    EXPECT_TRUE(grade.has_value()) << grade.error().to_string();
    return grade ? grade->reward : -1;
  }
  Scratch scratch_;
};

TEST_F(HumanEvalPack, a_line_of_python_is_a_task_that_passes) {
  const auto task = only_task(python_row());
  EXPECT_EQ(task.name, "Python/900");
  EXPECT_EQ(task.spec.kind, "python");
  EXPECT_THAT(task.instruction, HasSubstr("Multiply every number."));
  EXPECT_TRUE(task.files.contains("examples.py"));
  const auto v = validate(task, *backend_, 2);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(HumanEvalPack, a_line_of_cpp_is_a_task_that_passes) {
  const auto task = only_task(cpp_row());
  EXPECT_EQ(task.spec.kind, "cpp");
  const auto v = validate(task, *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(HumanEvalPack, python_that_attacks_the_process_of_its_tests_finds_no_tests_there) {
  const auto task = only_task(python_row());
  const std::string head = python_row().at("declaration").get<std::string>();
  for (const char* body : {"    import os\n    os._exit(0)\n", "    raise SystemExit(0)\n", "    while True: pass\n",
                           "    class Equal:\n        __eq__ = lambda *a: True\n        __repr__ = lambda s: '[3, "
                           "6]'\n    return Equal()\n",
                           "    import sys\n    sys.stdout.write('passed'); "
                           "sys.modules['__main__'].out.write('passed')\n    os._exit(0)\n",
                           "    import builtins\n    builtins.AssertionError = None\n    return xs\n"}) {
    EXPECT_EQ(reward_of(task, head + body), 0) << body;
  }
  EXPECT_EQ(reward_of(task, "passed"), 0);
  EXPECT_EQ(reward_of(task, head + "    print('noise')\n    return [x * by for x in xs]\n"), 1);
}

TEST_F(HumanEvalPack, cpp_that_tampers_with_assertions_or_leaves_early_does_not_pass) {
  const auto task = only_task(cpp_row());
  const std::string wrong = cpp_row().at("declaration").get<std::string>() + "    return xs;\n}\n";
  for (const char* attack :
       {"#include <cstdlib>\nstruct Leave { Leave() { std::_Exit(0); } } leave;\n",
        "#define NDEBUG\n#define assert(x)\n",
        "extern \"C\" void __assert_fail(const char*, const char*, unsigned, const char*) throw() {}\n",
        "#include <cstdio>\nint main() { std::puts(\"passed\"); }\n", "bool issame(...) { return true; }\n",
        "syntax error\n"}) {
    EXPECT_EQ(reward_of(task, attack + wrong), 0) << attack;
  }
}

TEST_F(HumanEvalPack, lines_that_are_not_its_form_are_told_with_their_numbers) {
  Json no_test = python_row(), go = python_row(), name = python_row();
  no_test.erase("test");
  go["task_id"] = "Go/1";
  name["entry_point"] = "a b";
  put({python_row(), no_test, go, Json::array(), name});
  const auto set = TaskSet::read(scratch_.path);
  ASSERT_FALSE(set.has_value());
  const auto all = set.error().message();
  EXPECT_THAT(all, HasSubstr("tasks.jsonl:2: lacks \"test\""));
  EXPECT_THAT(all, HasSubstr("tasks.jsonl:3: task_id \"Go/1\" is neither Python/N nor CPP/N"));
  EXPECT_THAT(all, HasSubstr("tasks.jsonl:4: is no JSON object"));
  EXPECT_THAT(all, HasSubstr("tasks.jsonl:5: \"entry_point\" is no name of a function"));
}

TEST_F(HumanEvalPack, tests_that_fail_with_their_own_reference_are_no_reward_at_all) {
  auto row = python_row();
  row["canonical_solution"] = "    return None\n";
  const auto v = validate(only_task(row), *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kFailed);
  EXPECT_THAT(v.findings, testing::Contains(HasSubstr("fail with its reference")));
}

TEST_F(HumanEvalPack, a_header_that_is_not_installed_is_named) {
  auto row = cpp_row();
  row["declaration"] = "#include<nowhere/any.hpp>\n" + row.at("declaration").get<std::string>();
  const auto v = validate(only_task(row), *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kUnfit);
  EXPECT_THAT(v.findings, testing::Contains(HasSubstr("needs /usr/include/nowhere/any.hpp")));
}

}  // namespace
}  // namespace tandem::envs
