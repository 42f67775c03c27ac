#include "archive/comparison.h"

#include "tests/archive/runs.h"

namespace tandem::archive {
namespace {

const Figure* figure_of(const Comparison& runs, const std::string& name) {
  for (const auto& figure : runs.figures)
    if (figure.name == name) return &figure;
  return nullptr;
}

TEST(ComparisonTest, keys_that_differ_and_figures_of_both_are_named) {
  RecordedRun before, after([](run::RunConfig&config) { config.trainer.learning_rate = 0.5; });
  before.play(dashboard::learns);
  after.play([](const rollout::LeaseTerms& lease, rollout::Phase phase) {
    return phase == rollout::Phase::kAfter ? 1 : dashboard::learns(lease, phase);
  });
  before.write("metrics.jsonl", "{\"step\": 1, \"loss\": 1.0}\n{\"step\": 2, \"loss\": 3.0}\n");
  before.end("done"), after.end("done");
  const auto runs = compare_runs(before.dir(), after.dir());
  ASSERT_TRUE(runs) << runs.error().to_string();
  ASSERT_EQ(runs->config.size(), 1u);
  EXPECT_EQ(runs->config[0].key, "trainer.learning_rate");
  EXPECT_EQ(runs->config[0].after, Json(0.5));
  const Figure* heldout = figure_of(*runs, "heldout.after");
  ASSERT_TRUE(heldout && heldout->before_interval);
  EXPECT_EQ(heldout->before, 0.75);
  EXPECT_EQ(heldout->after, 1.0);
  const Figure* loss = figure_of(*runs, "loss");
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->before, 2.0) << "the mean of the last steps";
  EXPECT_EQ(loss->after, std::nullopt);
  EXPECT_EQ(figure_of(*runs, "kl"), nullptr) << "a figure that neither has";
  ASSERT_TRUE(runs->difference);
  EXPECT_EQ(runs->difference->value, 0.25);
  EXPECT_EQ(runs->paired_tasks, 4u);
  EXPECT_EQ(to_json(*runs, 0)["difference"]["points"], 0.25);
}

TEST(ComparisonTest, runs_of_other_task_sets_are_not_paired) {
  const auto on_set = [](run::RunConfig& config) { config.tasks.path = "tasks"; };
  RecordedRun before(on_set), after(on_set);
  before.write(
      "tasks.json",
      R"({"path": "tasks", "tasks": [{"name": "a", "kind": "find", "split": "train", "seed": 0, "digest": "1"}]})");
  after.write(
      "tasks.json",
      R"({"path": "tasks", "tasks": [{"name": "a", "kind": "find", "split": "train", "seed": 0, "digest": "2"}]})");
  before.end("done"), after.end("done");
  // The plan of such a config comes from the set itself, and the log has it: only what differs matters here.
  before.play(dashboard::learns), after.play(dashboard::learns);
  const auto runs = compare_runs(before.dir(), after.dir());
  if (!runs) GTEST_FAIL() << runs.error().to_string();
  EXPECT_FALSE(runs->difference);
  EXPECT_NE(runs->unpaired.find("task sets"), std::string::npos) << runs->unpaired;
}

TEST(ComparisonTest, what_is_no_run_is_named) {
  const RecordedRun run;
  const auto runs = compare_runs(run.dir(), run.dir() / "ledger");
  ASSERT_FALSE(runs);
  EXPECT_NE(runs.error().to_string().find("ledger"), std::string::npos);
}

}  // namespace
}  // namespace tandem::archive
