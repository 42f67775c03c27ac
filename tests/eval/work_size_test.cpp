// How much a sample changed: counted by a player, kept, and reported.
#include "eval/work_size.h"

#include <gmock/gmock.h>

#include "eval/outcome_files.h"
#include "eval/player.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/eval/night_fixture.h"

namespace tandem::eval {
namespace {

using testing::HasSubstr;
using testing::Not;

// Runs one command, then is done.
class OneCommand final : public rollout::AgentModel {
 public:
  explicit OneCommand(std::string command) : command_(std::move(command)) {}
  std::string name() const override { return "one"; }
  const std::vector<envs::Message>& opening() const override { return opening_; }
  const Json& tools() const override { return tools_; }
  Result<rollout::AgentTurn> turn(std::span<const envs::ToolOutcome>, const rollout::TurnListener&,
                                  const std::stop_token&) override {
    rollout::AgentTurn turn;
    if (std::exchange(called_, true)) {
      turn.text = "done";
    } else {
      turn.calls.push_back({{"run_terminal_cmd", {{"command", command_}}}, "", "c"});
      turn.call_ids = {"c"};
    }
    return turn;
  }

 private:
  const std::string command_;
  const std::vector<envs::Message> opening_;
  const Json tools_ = Json::array();
  bool called_ = false;
};

class OneCommandSource final : public ModelSource {
 public:
  explicit OneCommandSource(std::string command) : command_(std::move(command)) {}
  Result<std::unique_ptr<rollout::AgentModel>> begin(const envs::Task&, uint64_t,
                                                     std::vector<envs::ForeignTool>) override {
    return std::make_unique<OneCommand>(command_);
  }

 private:
  const std::string command_;
};

class PlayedWork : public envs::SandboxTest {
 protected:
  SampleResult play_command(const std::string& command, const envs::Task& task) {
    OneCommandSource source(command);
    PlayTerms terms{.episode = {.tools = {"run_terminal_cmd"}}, .time = std::chrono::seconds(60)};
    terms.episode.call_time_limit_s = 30;
    return play(task, 0, source, *backend_, terms, SystemClock(), {}).result;
  }
  static envs::Task task() {
    envs::Task task;
    task.name = "work";
    task.files = {{"a.py", "import os\nprint(os.sep)\n"},
                  {"tests/test_a.py", "import a\n"},
                  {"check_all.sh", "true\n"},
                  {".gitignore", "build/\n"}};
    task.ends_on_change = false;
    task.max_turns = 5;
    task.expectation.commands.emplace();
    task.expectation.commands->files["check_all.sh"] = "true\n";
    task.expectation.commands->commands.push_back({.command = "true"});
    return task;
  }
};

TEST_F(PlayedWork, files_lines_lints_and_tests_are_counted) {
  const auto result = play_command(
      "printf 'import sys\\nimport os\\nprint(1)\\n' > a.py; rm tests/test_a.py; echo false > check_all.sh; "
      "mkdir build __pycache__; echo 1 > build/a; echo 1 > __pycache__/a.pyc; echo 1 > tests/test_new.py",
      task());
  EXPECT_TRUE(result.passed()) << result.why;
  ASSERT_TRUE(result.diff);
  EXPECT_EQ(result.diff->files, 4u);
  EXPECT_EQ(result.diff->lines_added, 2u + 1u + 1u);
  EXPECT_EQ(result.diff->lines_removed, 1u + 1u + 1u);
  EXPECT_EQ(result.diff->test_files, 2u) << "one by its name, one that grading brings; a new one is not of the task";
  EXPECT_FALSE(result.diff->at_least);
}

TEST_F(PlayedWork, lints_of_the_task_are_not_the_samples_doing) {
  auto with_lint = task();
  with_lint.files["a.py"] = "import os\n";
  const auto result = play_command("echo 'import sys' >> a.py", with_lint);
  ASSERT_TRUE(result.diff);
  ASSERT_TRUE(result.diff->new_lints);
  EXPECT_EQ(*result.diff->new_lints, 1u);
  EXPECT_EQ(result.diff->linted_files, 1u);
}

TEST_F(PlayedWork, without_a_change_there_is_no_difference_and_nothing_to_lint) {
  const auto result = play_command("true", task());
  ASSERT_TRUE(result.diff);
  EXPECT_EQ(*result.diff, WorkSize());
}

TEST_F(PlayedWork, what_setup_makes_is_not_the_samples_doing) {
  auto with_setup = task();
  with_setup.setup = {"seq 1 50 > made.txt"};
  const auto result = play_command("echo 51 >> made.txt", with_setup);
  ASSERT_TRUE(result.diff);
  EXPECT_EQ(result.diff->files, 1u);
  EXPECT_EQ(result.diff->lines_added, 1u);
}

TEST_F(PlayedWork, more_than_is_collected_gives_lower_bounds) {
  const auto many = play_command("mkdir m; cd m; seq 1 12000 | xargs touch", task());
  EXPECT_FALSE(many.passed());
  ASSERT_TRUE(many.diff);
  EXPECT_TRUE(many.diff->at_least);
  EXPECT_GT(many.diff->files, 5000u);
  EXPECT_LE(many.diff->files, 10'000u);
  const auto large = play_command("head -c 60000000 /dev/zero > large", task());
  ASSERT_TRUE(large.diff);
  EXPECT_TRUE(large.diff->at_least);
  EXPECT_EQ(large.diff->files, 1u);
}

TEST_F(PlayedWork, a_task_whose_own_tree_is_more_than_is_collected_has_no_difference) {
  auto huge = task();
  huge.setup = {"head -c 60000000 /dev/zero > large"};
  const auto result = play_command("echo 1 > b.py", huge);
  ASSERT_TRUE(result.has_verdict()) << result.why;
  EXPECT_EQ(result.diff, std::nullopt);
}

TEST_F(PlayedWork, a_sample_without_a_verdict_has_no_difference) {
  auto broken = task();
  broken.setup = {"false"};
  const auto result = play_command("true", broken);
  EXPECT_FALSE(result.has_verdict());
  EXPECT_EQ(result.diff, std::nullopt);
}

WorkSize size_of(uint64_t files, std::optional<uint64_t> lints) {
  return {.files = files, .lines_added = 10 * files, .new_lints = lints, .linted_files = lints ? files : 0};
}

TEST(WorkSize, a_sample_keeps_it_and_one_of_an_older_version_has_none) {
  auto sample = sample_of("a", 0, true);
  sample.diff = {.files = 3,
                 .binary_files = 1,
                 .lines_added = 20,
                 .lines_removed = 4,
                 .test_files = 1,
                 .at_least = true,
                 .new_lints = 2,
                 .linted_files = 2,
                 .lints_at_least = true};
  EXPECT_EQ(*sample_from_json(to_json(sample)), sample);
  sample.diff->new_lints.reset();
  EXPECT_EQ(*sample_from_json(to_json(sample)), sample);
  Json older = to_json(sample);
  older.erase("diff");
  EXPECT_EQ(sample_from_json(older)->diff, std::nullopt);
  sample.diff.reset();
  EXPECT_TRUE(to_json(sample).at("diff").is_null());
  EXPECT_EQ(*sample_from_json(to_json(sample)), sample);
}

TEST(WorkSize, what_is_none_is_refused) {
  const Json good = to_json(std::optional(size_of(1, 0)));
  ASSERT_TRUE(work_size_from_json(good));
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    EXPECT_FALSE(work_size_from_json(bad)) << key;
    for (const Json& other : {Json(-1), Json(0.5), Json("1"), Json(uint64_t{1} << 60), Json::array()}) {
      bad[key] = other;
      EXPECT_FALSE(work_size_from_json(bad)) << key << " " << other.dump();
    }
  }
  for (const Json& bad : {Json(1), Json::array(), Json::object(), Json("")}) EXPECT_FALSE(work_size_from_json(bad));
}

// Three samples with a verdict, of which two passed, and one without.
Night night_of_work() {
  Night night = night_with({2}, 4);
  auto& samples = night.tasks[0].samples;
  samples[0].diff = size_of(1, 0);
  samples[1].diff = size_of(3, std::nullopt);
  samples[2].diff = size_of(200, 4);
  samples[2].diff->at_least = true;
  samples[3].outcome = rollout::Outcome::kInfraError;
  samples[3].diff = size_of(9, 9);
  return night;
}

TEST(WorkSize, means_and_medians_are_of_samples_with_a_verdict_and_of_those_that_passed_apart) {
  const Json diff = to_json(summarize(night_of_work(), {})).at("diff");
  EXPECT_EQ(diff.at("all").at("files"), (Json{{"samples", 3}, {"mean", 68.0}, {"median", 3.0}}));
  EXPECT_EQ(diff.at("all").at("new_lints"), (Json{{"samples", 2}, {"mean", 2.0}, {"median", 2.0}}));
  EXPECT_EQ(diff.at("all").at("at_least"), 1);
  EXPECT_EQ(diff.at("passed").at("samples"), 2);
  EXPECT_EQ(diff.at("passed").at("lines_added"), (Json{{"samples", 2}, {"mean", 20.0}, {"median", 20.0}}));
  EXPECT_EQ(diff.at("passed").at("at_least"), 0);
}

TEST(WorkSize, reports_have_it_as_a_line_that_says_what_is_not_known) {
  Verdict verdict{.night = night_of_work()};
  verdict.summary = summarize(verdict.night, {});
  const auto text = work_text(verdict.summary.diffs, verdict.summary.diffs_of_passed);
  EXPECT_EQ(
      text,
      "3 files, 30 lines added, 0 removed, 0 test files, 2 new lints (means 68, 680, 0, 0, 2) in 3 samples, lints "
      "looked for in 2, in 1 of them at least; of those that passed 2 files, 20 lines added, 0 removed, 0 test files, "
      "0 new lints (means 2, 20, 0, 0, 0) in 2 samples, lints looked for in 1");
  EXPECT_THAT(report_markdown(verdict), HasSubstr(text));
  EXPECT_THAT(report_page(verdict, [](const SampleResult&) { return Json(); }), HasSubstr(text));
  EXPECT_EQ(results_json(verdict).at("diff").at("all").at("samples"), 3);
  EXPECT_EQ(results_json(verdict).at("tasks")[0].at("samples")[1].at("diff").at("files"), 3);
}

TEST(WorkSize, samples_of_an_older_version_make_up_no_figure) {
  const auto summary = summarize(night_with({2}, 4), {});
  EXPECT_EQ(work_text(summary.diffs, summary.diffs_of_passed), "not known");
  const Json diff = to_json(summary).at("diff");
  EXPECT_EQ(diff.at("all").at("samples"), 0);
  EXPECT_TRUE(diff.at("all").at("files").is_null());
  EXPECT_TRUE(diff.at("passed").at("new_lints").is_null());
}

TEST(WorkSize, lints_that_no_sample_has_are_not_zero) {
  WorkSizes sizes;
  sizes.add(size_of(1, std::nullopt));
  EXPECT_EQ(sizes.text(),
            "1 file, 10 lines added, 0 removed, 0 test files (means 1, 10, 0, 0) in 1 sample, lints looked for in 0");
  EXPECT_THAT(sizes.text(), Not(HasSubstr("0 new lints")));
}

}  // namespace
}  // namespace tandem::eval
