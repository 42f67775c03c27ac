// Held-out tasks that are measured while a run of the real processes trains.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class HeldoutEveryRunTest : public RunTest {};

// Deterministic, so that no measurement is late.
TEST_F(HeldoutEveryRunTest, steps_are_measured_and_the_best_checkpoint_is_named_and_kept) {
  const fs::path dir = root() / "measured";
  ASSERT_EQ(
      run({"run.steps=6", "run.deterministic=true", "tasks.heldout=3", "tasks.heldout_samples=2", "tasks.floors=false",
           "tasks.heldout_every=2", "trainer.keep_checkpoints=best", "trainer.checkpoint_every=100"},
          dir),
      0)
      << text(output());
  const Json summary = json(dir / "summary.json");
  const Json& during = summary["heldout"]["during"];
  ASSERT_EQ(during.size(), 2u) << during.dump();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(during[i]["step"], 2 * (i + 1));
    EXPECT_EQ(during[i]["last_version"], 2 * (i + 1)) << "one version is measured";
    EXPECT_EQ(during[i]["sampled"]["n_samples"], 6);
    EXPECT_EQ(during[i]["greedy"]["n_samples"], 3);
  }
  // What the books call the best is what the summary says, of equals the later.
  const double rates[] = {during[0]["sampled"]["pass_rate"].get<double>(),
                          during[1]["sampled"]["pass_rate"].get<double>(),
                          summary["heldout"]["after"]["pass_rate"].get<double>()};
  int best = 0;
  for (int i = 1; i < 3; ++i)
    if (rates[i] >= rates[best]) best = i;
  const fs::path checkpoints = dir / "checkpoints";
  EXPECT_EQ(fs::read_symlink(checkpoints / "best"), "step_" + std::to_string(2 * (best + 1)));
  EXPECT_TRUE(fs::exists(checkpoints / "best" / "learner.json"));
  EXPECT_TRUE(fs::exists(checkpoints / "step_6" / "learner.json"));
  EXPECT_FALSE(fs::is_symlink(checkpoints / "measuring"));
  size_t kept = 0;
  for (const auto& entry : fs::directory_iterator(checkpoints)) kept += !entry.is_symlink();
  EXPECT_LE(kept, 2u + (best != 2)) << "the best, the newest, and what was to be measured";
  // From the step on that follows a measurement its figures stand in the metrics.
  std::string last;
  const std::string lines = text(dir / "metrics.jsonl");
  for (const auto line : split_lines(lines)) last = line;
  EXPECT_EQ((*parse_json(last))["heldout"]["step"], 4) << last;
  EXPECT_NE(text(dir / "report.html").find("Success on held-out tasks, by step"), std::string::npos);
  expect_books_to_agree(dir);
  expect_nothing_left(dir);
}

TEST_F(HeldoutEveryRunTest, beside_the_training_the_books_agree_too) {
  const fs::path dir = root() / "beside";
  ASSERT_EQ(
      run({"run.steps=12", "tasks.heldout=4", "tasks.heldout_samples=2", "tasks.floors=false", "tasks.heldout_every=3"},
          dir),
      0)
      << text(output());
  expect_books_to_agree(dir);
  expect_nothing_trained_twice(dir);
  size_t during = 0;
  for (const Json& episode : episodes(dir)) {
    if (episode["phase"] != "during") continue;
    ++during;
    EXPECT_TRUE(episode["trained_step"].is_null());
    EXPECT_TRUE(episode["dropped"] == "heldout" || episode["dropped"] == "run_ended") << episode["dropped"];
  }
  EXPECT_EQ(during % 12, 0u) << "four tasks of three episodes, each time";
  EXPECT_GT(during, 0u);
}

TEST_F(HeldoutEveryRunTest, the_best_without_a_measurement_is_refused_by_name) {
  EXPECT_EQ(run({"trainer.keep_checkpoints=best"}, root() / "refused"), 2);
  EXPECT_NE(text(output()).find("tasks.heldout_every"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
