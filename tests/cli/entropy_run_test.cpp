// Runs whose entropy is held at a target: the coefficient over steps, and the same bits after a kill and in a replay.
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class EntropyRun : public RunTest {};

TEST_F(EntropyRun, raises_its_coefficient_below_the_target_and_has_the_same_bits_after_a_kill_and_in_a_replay) {
  const Arguments held = {"run.deterministic=true",
                          "tasks.heldout=0",
                          "trainer.max_lag=0",
                          "trainer.checkpoint_every=2",
                          "trainer.keep_checkpoints=all",
                          "algorithm.entropy.target=50",
                          "algorithm.entropy.step=0.01",
                          "run.steps=6",
                          "trainer.dynamic_sampling=20"};
  const fs::path whole = root() / "entropy";
  ASSERT_EQ(run(held, whole), 0) << text(output());
  expect_same_logprobs(whole);
  std::vector<double> coefficients;
  std::istringstream lines(text(whole / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json step = *parse_json(line);
    if (step.contains("loss_metrics")) coefficients.push_back(step["loss_metrics"].value("entropy_coefficient", -1.0));
  }
  ASSERT_EQ(coefficients.size(), 6u);
  for (size_t i = 0; i < coefficients.size(); ++i) EXPECT_NEAR(coefficients[i], 0.01 * static_cast<double>(i), 1e-12);
  ASSERT_EQ(tandem({"replay", whole.string(), "--step", "4"}), 0) << text(output());

  const fs::path killed = root() / "entropy-killed";
  Arguments shared = held;
  shared.insert(shared.end(), {"trainer.ranks=2", "rollout.workers=1"});
  {
    Process process(command(shared, killed), output());
    ASSERT_TRUE(reaches_step(process, killed, 3)) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run(shared, killed, true), 0) << text(output());
  expect_nothing_trained_twice(killed);
  EXPECT_EQ(export_digest(killed), export_digest(whole));
}

}  // namespace
}  // namespace tandem
