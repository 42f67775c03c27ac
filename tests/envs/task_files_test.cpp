#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/episode.h"
#include "envs/episodes/validate.h"
#include "envs/tasks/task_set.h"
#include "envs/tasks/workspace/kinds.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTask = R"(
instruction: Let double in double.py give twice its argument.
files:
  double.py: |
    def double(x):
        return x
check:
  files:
    test_double.py: |
      import sys
      sys.path.insert(0, ".")
      from double import double
      print(double(4))
  commands:
    - run: python3 -I test_double.py
      output: "8"
solution:
  files:
    double.py: "def double(x):\n    return 2 * x\n"
)";

class TaskFiles : public SandboxTest {
 protected:
  TaskSet read(const TaskSetOptions& options = {}) {
    auto set = TaskSet::read(scratch_.path, options);
    EXPECT_TRUE(set.has_value()) << set.error().to_string();
    return set ? *set : TaskSet();
  }
  std::string mistakes() {
    const auto set = TaskSet::read(scratch_.path);
    return set ? "" : set.error().to_string();
  }
  Grade play(const Task& task, const std::vector<std::string>& commands, const std::string& answer = "") {
    const auto episode = Episode::open(task, *backend_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    if (!episode) return {};
    for (const auto& command : commands) {
      EXPECT_TRUE((*episode)->call("run_terminal_cmd", {{"command", command}}).has_value());
    }
    const auto grade = (*episode)->score(answer);
    EXPECT_TRUE(grade.has_value()) << grade.error().to_string();
    return grade.value_or(Grade{.reward = -1});
  }
  Scratch scratch_;
};

TEST_F(TaskFiles, a_good_task_passes_validation) {
  scratch_.put("double.yaml", kTask);
  const auto v = validate(read().tasks()[0], *backend_, 3);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
  EXPECT_EQ(v.name, "double");
}

TEST_F(TaskFiles, a_check_by_exit_code_alone_is_found_to_be_open_to_code_that_exits_early) {
  std::string weak = kTask;
  weak.replace(weak.find("print(double(4))"), 16, "assert double(4) == 8");
  weak.erase(weak.find("      output: \"8\"\n"), 18);
  scratch_.put("double.yaml", weak);
  const auto v = validate(read().tasks()[0], *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kFailed);
  EXPECT_THAT(v.findings, ElementsAre(HasSubstr("the cheat exits_early scores 1")));
}

TEST_F(TaskFiles, a_task_that_is_solved_from_the_start_or_never_does_not_pass) {
  std::string solved = kTask;
  solved.replace(solved.find("return x"), 8, "return 2*x");
  scratch_.put("solved.yaml", solved);
  std::string never = kTask;
  never.replace(never.find("return 2 * x"), 12, "return 3 * x");
  scratch_.put("never.yaml", never);
  const auto set = read();
  EXPECT_THAT(validate(*set.find("solved"), *backend_, 1).findings,
              testing::Contains(HasSubstr("doing nothing scores 1")));
  EXPECT_THAT(validate(*set.find("never"), *backend_, 1).findings,
              testing::Contains(HasSubstr("the solution scores 0")));
}

TEST_F(TaskFiles, all_mistakes_of_all_files_are_told_at_once_with_their_lines) {
  scratch_.put("a.yaml",
               "instruction: ''\n"
               "file: {}\n"
               "turns: many\n"
               "files:\n"
               "  ../x: a\n"
               "  /y: b\n"
               "  z: {from: nowhere}\n"
               "check:\n"
               "  comands: []\n"
               "turns: 3\n");
  scratch_.put("b.yaml", "instruction: x\ncheck: {answer: ''}\n");
  scratch_.put("c.yaml", "instruction: [\n");
  scratch_.put("d.yaml", "instruction: x\ncheck: {commands: [{exit: 1}, {run: ls, seconds: 9000}]}\n");
  const auto all = mistakes();
  for (const char* part :
       {"a.yaml:1: the task has no instruction", "a.yaml:2: unknown key file in the task; did you mean \"files\"?",
        "a.yaml:3: turns: \"many\" is not a number", "a.yaml:5: files: \"../x\" leads out of the workspace",
        "a.yaml:6: files: \"/y\" must be relative", "a.yaml:7: there is no file or folder",
        "a.yaml:9: unknown key comands in check; did you mean \"commands\"?",
        "a.yaml:10: turns stands twice in the task; first on line 3", "b.yaml:2: check: the answer is empty",
        "c.yaml:2: is not YAML", "d.yaml:2: a command of check has nothing to run",
        "d.yaml:2: seconds: 9000 is outside 0.1 to 1800"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST_F(TaskFiles, names_and_kinds_are_folders_unless_a_file_says_otherwise) {
  scratch_.put("math/easy/double.yaml", kTask);
  scratch_.put("math/triple.yaml", std::string(kTask) + "kind: hard\n");
  scratch_.put("math/triple.files/data.yaml", "not: a task\n");
  scratch_.put("words/one.yml", "instruction: Say one.\ncheck: {answer: one}\n");
  const auto set = read();
  EXPECT_THAT(set.kinds(), ElementsAre("hard", "math", "words"));
  EXPECT_NE(set.find("math/easy/double"), nullptr);
  EXPECT_EQ(set.find("math/triple")->spec.kind, "hard");
  EXPECT_EQ(TaskSet::read(scratch_.path / "words/one.yml")->tasks()[0].name, "one");
  const auto chosen = TaskSet::read(scratch_.path, {.kinds = {"words"}});
  EXPECT_EQ(chosen->tasks().size(), 1u);
  EXPECT_THAT(TaskSet::read(scratch_.path, {.kinds = {"wrds"}}).error().message(), HasSubstr("did you mean \"words\""));
  EXPECT_EQ(TaskSet::read(scratch_.path / "nowhere").error().code(), Code::kNotFound);
}

TEST_F(TaskFiles, a_task_stays_on_its_side_whatever_is_added) {
  const auto put = [&](int number) {
    scratch_.put(std::to_string(number) + ".yaml", "instruction: x\ncheck: {answer: y}\n");
  };
  for (int i = 0; i < 40; ++i) put(i);
  const TaskSetOptions options{.heldout_share = 0.3, .kinds = {}};
  const auto before = read(options);
  for (int i = 40; i < 80; ++i) put(i);
  const auto after = read(options);
  size_t held_out = 0;
  for (const auto& task : before.tasks()) {
    EXPECT_EQ(after.find(task.name)->spec.split, task.spec.split) << task.name;
    held_out += task.spec.split == Split::kHeldout;
  }
  EXPECT_GT(held_out, 4u);
  EXPECT_LT(held_out, 20u);
  const auto kind = before.kinds().at(0);
  EXPECT_EQ(before.count(kind, Split::kTrain) + before.count(kind, Split::kHeldout), 40u);
  for (const auto& task : before.tasks()) EXPECT_EQ(before.task(task.spec)->name, task.name);
  EXPECT_FALSE(before.task({kind, Split::kTrain, 40}).has_value());
}

TEST_F(TaskFiles, a_folder_comes_in_with_its_programs_and_without_its_history) {
  scratch_.put("repo.yaml",
               "instruction: x\nfiles: {.: {from: repo}}\nsetup: ['export GREETING=hi']\n"
               "check: {commands: [{run: ./bin/greet, output: hi}]}\n");
  scratch_.put("repo/bin/greet", "#!/bin/sh\necho hi\n");
  scratch_.put("repo/.git/HEAD", "ref");
  fs::permissions(scratch_.path / "repo/bin/greet", fs::perms(0755));
  const auto task = read().tasks()[0];
  EXPECT_THAT(task.files, ElementsAre(testing::Key("bin/greet")));
  EXPECT_EQ(play(task, {"./bin/greet | grep -q $GREETING || rm bin/greet"}).reward, 1);
  EXPECT_EQ(play(task, {"chmod -x bin/greet"}).reward, 0);
  fs::create_symlink("/etc/passwd", scratch_.path / "repo/link");
  EXPECT_THAT(mistakes(), HasSubstr("links are not followed"));
}

TEST_F(TaskFiles, more_than_a_task_may_have_is_refused) {
  scratch_.put("t.yaml", "instruction: x\nfiles: {.: {from: repo.files}}\ncheck: {answer: y}\n");
  scratch_.put("repo.files/a", std::string(13 << 20, 'a'));
  EXPECT_EQ(mistakes(), "");
  scratch_.put("repo.files/b", std::string(13 << 20, 'b'));
  EXPECT_THAT(mistakes(), HasSubstr("t.yaml:2: more than 25 MB of files for one task"));
  scratch_.put("repo.files/b", "");
  for (int i = 0; i < 8000; ++i) scratch_.put("repo.files/many/" + std::to_string(i), "");
  EXPECT_THAT(mistakes(), HasSubstr("t.yaml:2: more than 8000 files for one task"));
}

TEST_F(TaskFiles, what_lies_where_the_tests_come_is_no_failure_of_the_infrastructure) {
  scratch_.put("double.yaml", kTask);
  const auto task = read().tasks()[0];
  const std::string solve = "printf 'def double(x):\\n    return 2 * x\\n' > double.py";
  for (const char* obstacle :
       {"mkdir -p test_double.py/inner && touch test_double.py/inner/file", "ln -s /dev/null test_double.py",
        "mkfifo test_double.py", "echo 'print(8)' > test_double.py; chmod 444 test_double.py", "true"}) {
    EXPECT_EQ(play(task, {obstacle}).reward, 0) << obstacle;
    EXPECT_EQ(play(task, {obstacle, solve}).reward, 1) << obstacle;
  }
}

TEST_F(TaskFiles, every_part_of_a_check_must_hold) {
  scratch_.put("both.yaml",
               "instruction: x\ncheck:\n  answer: '7'\n  files_after: {out.txt: \"a\\n\"}\n"
               "  commands: ['test -f out.txt', {run: 'exit 3', exit: 3}]\n");
  const auto task = read().tasks()[0];
  EXPECT_EQ(play(task, {"echo a > out.txt"}, "7").reward, 1);
  EXPECT_EQ(play(task, {"echo a > out.txt"}, "8").reward, 0);
  EXPECT_EQ(play(task, {"echo b > out.txt"}, "7").reward, 0);
  EXPECT_THAT(play(task, {}, "7").why, HasSubstr("out.txt is not there"));
}

TEST_F(TaskFiles, tests_that_are_named_must_be_reported_as_passed_whatever_else_is) {
  const std::string tests =
      "import sys, unittest\nsys.path.insert(0, '.')\nfrom double import double\nclass A(unittest.TestCase):\n"
      "    def test_four(self):\n        self.assertEqual(double(4), 8)\n"
      "    def test_text(self):\n        self.assertEqual(double('a'), 'aa')\n"
      "    def test_never(self):\n        self.fail()\nunittest.main(verbosity=2)\n";
  const auto task = [&](const std::string& wanted) {
    scratch_.put("tests.files/test_double.py", tests);
    scratch_.put("t.yaml",
                 "instruction: Let double double.\nfiles: {double.py: \"def double(x):\\n    return x\\n\"}\ncheck:\n"
                 "  files: {test_double.py: {from: tests.files/test_double.py}}\n"
                 "  commands: [python3 -I test_double.py]\n  tests: " +
                     wanted + "\nsolution: {files: {double.py: \"def double(x):\\n    return 2 * x\\n\"}}\n");
    return *read().find("t");
  };
  const auto v = validate(task("[test_four (__main__.A), test_text (__main__.A.test_text)]"), *backend_, 2);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
  const auto all = validate(task("all"), *backend_, 1);
  EXPECT_THAT(all.findings, testing::Contains(HasSubstr("test_never (__main__.A) failed")));
  const auto other = validate(task("[test_five (__main__.A)]"), *backend_, 1);
  EXPECT_THAT(other.findings, testing::Contains(HasSubstr("test_five (__main__.A) was not reported")));
}

TEST_F(TaskFiles, an_image_is_a_part_of_the_task_and_of_its_digest) {
  scratch_.put("a.yaml", "instruction: x\nimage: python:3.12-slim\ncheck: {answer: y}\n");
  scratch_.put("b.yaml", "instruction: x\ncheck: {answer: y}\n");
  const auto set = read();
  EXPECT_EQ(set.find("a")->image, "python:3.12-slim");
  auto same = *set.find("a");
  same.image.clear();
  EXPECT_NE(digest_of_task(same), digest_of_task(*set.find("a")));
  scratch_.put("a.yaml", "instruction: x\nimage: a//b\nneeds: [gcc]\ncheck: {answer: y}\n");
  EXPECT_THAT(mistakes(), HasSubstr("a.yaml:2: image: \"a//b\" is no name of an image"));
  EXPECT_THAT(mistakes(), HasSubstr("needs says what this machine must have"));
}

TEST_F(TaskFiles, a_missing_program_is_named_and_nothing_is_scored) {
  scratch_.put("a.yaml", "instruction: x\nneeds: [no-such-program]\ncheck: {answer: y}\nsolution: {answer: y}\n");
  const auto v = validate(read().tasks()[0], *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kUnfit);
  EXPECT_THAT(v.findings, ElementsAre("a needs no-such-program, which this machine does not have"));
  EXPECT_EQ(Episode::open(read().tasks()[0], *backend_).error().code(), Code::kUnfit);
  scratch_.put("a.yaml",
               "instruction: x\nneeds: [no-such-program, bash, package no-such]\ncheck: {answer: y}\n"
               "solution: {answer: y}\n");
  EXPECT_THAT(validate(read().tasks()[0], *backend_, 1).findings,
              ElementsAre("a needs no-such-program, package no-such, which this machine does not have"));
}

TEST_F(TaskFiles, a_command_of_the_check_that_this_machine_does_not_have_gives_no_grade) {
  const auto graded = [&](const std::string& text) -> std::string {
    scratch_.put("a.yaml", "instruction: x\nfiles: {a: b}\n" + text);
    const auto grade = (*Episode::open(read().tasks()[0], *backend_))->score("");
    return grade ? fmt::format("{}", grade->reward) : grade.error().message();
  };
  EXPECT_THAT(graded("check: {commands: ['no-such-program a']}\n"),
              HasSubstr("no grade: `no-such-program a` needs no-such-program, which this machine does not have"));
  EXPECT_THAT(graded("check: {commands: ['no-such-runner -v'], tests: all}\n"), HasSubstr("needs no-such-runner"));
  // What the model was to make and did not is no lack of the machine.
  EXPECT_EQ(graded("check: {commands: ['PATH=$PWD:$PATH greet']}\nsolution: {files: {greet: 'echo hello'}}\n"), "0");
  EXPECT_EQ(graded("check: {commands: ['exit 127']}\n"), "0");
}

TEST_F(TaskFiles, a_setup_that_fails_is_no_episode) {
  scratch_.put("a.yaml", "instruction: x\nsetup: ['echo broken; exit 4']\ncheck: {answer: y}\n");
  const auto episode = Episode::open(read().tasks()[0], *backend_);
  ASSERT_FALSE(episode.has_value());
  EXPECT_THAT(episode.error().message(), HasSubstr("broken"));
}

TEST_F(TaskFiles, a_task_without_a_solution_can_be_used_and_does_not_pass) {
  scratch_.put("a.yaml", "instruction: x\ncheck: {answer: y}\n");
  EXPECT_THAT(validate(read().tasks()[0], *backend_, 1).findings, ElementsAre(HasSubstr("no solution")));
}

TEST_F(TaskFiles, the_digest_changes_with_whatever_a_grade_depends_on) {
  scratch_.put("a.yaml", kTask);
  const auto first = digest_of_task(read().tasks()[0]);
  EXPECT_EQ(digest_of_task(read().tasks()[0]), first);
  for (const auto& [from, to] : {std::pair{"\"8\"", "\"9\""}, {"return x", "return y"}, {"double(4)", "double(5)"}}) {
    std::string changed = kTask;
    changed.replace(changed.find(from), std::string(from).size(), to);
    scratch_.put("a.yaml", changed);
    EXPECT_NE(digest_of_task(read().tasks()[0]), first) << from;
  }
  for (const char* more : {"network: [a.example]\n", "mcp: {a: b}\n"}) {
    scratch_.put("a.yaml", more + std::string(kTask));
    EXPECT_NE(digest_of_task(read().tasks()[0]), first) << more;
  }
}

TEST_F(TaskFiles, tasks_of_the_workspace_family_pass_too) {
  for (const auto kind : task_kinds()) {
    const auto v = validate(*make_task({std::string(kind), Split::kTrain, 5}), *backend_, 1);
    EXPECT_EQ(v.verdict, Verdict::kPassed) << kind << testing::PrintToString(v.findings);
  }
}

TEST_F(TaskFiles, the_examples_pass) {
  const auto set = TaskSet::read(TANDEM_SOURCE_DIR "/examples/tasks");
  ASSERT_TRUE(set.has_value()) << set.error().to_string();
  for (const auto& task : set->tasks()) {
    const auto v = validate(task, *backend_, 1);
    EXPECT_EQ(v.verdict, Verdict::kPassed) << task.name << testing::PrintToString(v.findings);
  }
}

}  // namespace
}  // namespace tandem::envs
