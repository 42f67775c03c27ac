// Runs whose model is its own teacher with a hint: what they record, that they have the same bits however they are cut
// and shared out, and what is refused.
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class HintRun : public RunTest {
 protected:
  static Arguments hinted(int steps, const Arguments& more) {
    Arguments arguments = {"run.deterministic=true",
                           "tasks.heldout=0",
                           "trainer.max_lag=0",
                           "trainer.checkpoint_every=3",
                           "trainer.keep_checkpoints=all",
                           "algorithm.teacher.hint=An attempt at this failed: {feedback}",
                           "algorithm.teacher.hint_tokens=48",
                           "algorithm.teacher.weight=0.3",
                           "run.steps=" + std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<Json> steps_of(const fs::path& run_dir) {
    std::vector<Json> steps;
    std::istringstream lines(text(run_dir / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json step = *parse_json(line);
      if (step.contains("loss_metrics")) steps.push_back(step);
    }
    return steps;
  }
};

TEST_F(HintRun, teaches_what_failed_and_has_the_same_bits_after_a_kill_with_ranks_and_in_a_replay) {
  constexpr int kSteps = 12;
  const fs::path whole = root() / "hinted";
  ASSERT_EQ(run(hinted(kSteps, {}), whole), 0) << text(output());
  expect_books_to_agree(whole);
  expect_same_logprobs(whole);
  const auto steps = steps_of(whole);
  ASSERT_GE(steps.size(), static_cast<size_t>(kSteps));
  for (const Json& step : steps) {
    const Json& metrics = step["loss_metrics"];
    EXPECT_GE(metrics.at("hinted").get<double>(), 0) << step;
    EXPECT_LE(metrics.at("hinted").get<double>(), 1) << step;
    EXPECT_TRUE(metrics.at("teacher_kl").is_number()) << step;
  }
  EXPECT_EQ(logs(whole).find("learned from without a hint"), std::string::npos);
  EXPECT_NE(text(whole / "report.html").find("Episodes with a hint"), std::string::npos);
  // What failed has a hint, and what did not has none.
  int with = 0, without = 0;
  for (const Json& episode : episodes(whole, true)) {
    if (episode["tokens"].empty()) continue;
    const bool failed = episode["reward"].get<double>() < 1;
    EXPECT_EQ(episode.contains("hint"), failed) << episode["episode"];
    failed ? ++with : ++without;
    if (failed) {
      EXPECT_LE(episode["hint"]["tokens"].size(), 48u);
    }
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
  for (const char* step : {"1", "5", "12"})
    ASSERT_EQ(tandem({"replay", whole.string(), "--step", step}), 0) << text(output());

  const fs::path killed = root() / "hinted-killed";
  const Arguments shared = {"trainer.ranks=2", "rollout.workers=1"};
  {
    Process process(command(hinted(kSteps, shared), killed), output());
    ASSERT_TRUE(reaches_step(process, killed, 4)) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run(hinted(kSteps, shared), killed, true), 0) << text(output());
  expect_nothing_trained_twice(killed);
  EXPECT_EQ(export_digest(killed), export_digest(whole));
  // What it was taught with cannot be changed on the way.
  EXPECT_EQ(run(hinted(kSteps + 1, {"algorithm.teacher.hint=Try harder."}), killed, true), 2);
  EXPECT_NE(text(output()).find("algorithm.teacher.hint"), std::string::npos) << text(output());
}

// Several updates, a reference model, what sampling cuts off, summaries, and a hint for all.
TEST_F(HintRun, goes_with_what_else_a_step_has) {
  const fs::path run_dir = root() / "hinted-all";
  ASSERT_EQ(
      run({"run.steps=3", "tasks.heldout=0", "trainer.epochs=2", "algorithm.kl.estimator=k3",
           "algorithm.kl.coefficient=0.01", "rollout.top_p=0.95", "env.compact_at=60", "algorithm.advantage=distill",
           "algorithm.teacher.hint=Use few words.", "trainer.keep_checkpoints=all"},
          run_dir),
      0)
      << text(output());
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
  for (const Json& step : steps_of(run_dir)) EXPECT_EQ(step["loss_metrics"].at("hinted"), 1.0) << step;
  ASSERT_EQ(tandem({"replay", run_dir.string(), "--step", "2"}), 0) << text(output());
}

TEST_F(HintRun, what_it_cannot_be_beside_is_refused_by_name) {
  const std::string hint = "algorithm.teacher.hint=Again: {feedback}";
  for (const char* other : {"algorithm.teacher.path=elsewhere", "algorithm.teacher.url=http://127.0.0.1:9/v1"}) {
    EXPECT_EQ(run({hint, other, "algorithm.teacher.model=x", "--dry-run"}, root() / "refused"), 2) << text(output());
    EXPECT_NE(text(output()).find("makes the model its own teacher"), std::string::npos) << text(output());
  }
  EXPECT_EQ(run({hint, "algorithm.teacher.hint_tokens=16384", "--dry-run"}, root() / "refused"), 2);
  EXPECT_NE(text(output()).find("positions of the model"), std::string::npos) << text(output());
  EXPECT_EQ(run({hint, "algorithm.teacher.hint_tokens=1", "--dry-run"}, root() / "refused"), 2);
  EXPECT_NE(text(output()).find("algorithm.teacher.hint_tokens is 1"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
