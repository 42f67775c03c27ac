// Runs whose samples are drawn from a part of the tokens: sampler and trainer agree to the bit, a replay and runs that
// are cut or shared out have the same bits, and what cannot be is refused by name.
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class KeptRun : public RunTest {
 protected:
  static Arguments cut(int steps, const Arguments& more) {
    Arguments arguments = {"run.deterministic=true",
                           "tasks.heldout=0",
                           "trainer.max_lag=0",
                           "trainer.checkpoint_every=3",
                           "rollout.top_p=0.9",
                           "rollout.top_k=40",
                           "trainer.keep_checkpoints=all",
                           "run.steps=" + std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<Json> steps_of(const fs::path& run_dir) {
    std::vector<Json> steps;
    std::istringstream lines(text(run_dir / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json json = *parse_json(line);
      if (json.contains("truncated_share")) steps.push_back(json);
    }
    return steps;
  }
};

TEST_F(KeptRun, has_no_difference_and_the_same_bits_after_a_kill_with_ranks_and_in_a_replay) {
  constexpr int kSteps = 12;
  const fs::path whole = root() / "kept";
  ASSERT_EQ(run(cut(kSteps, {}), whole), 0) << text(output());
  expect_same_logprobs(whole);
  expect_books_to_agree(whole);
  const auto steps = steps_of(whole);
  ASSERT_GE(steps.size(), 1u);
  for (const Json& step : steps) {
    EXPECT_GT(step["truncated_share"].get<double>(), 0.5) << step;
    EXPECT_GE(step["kept_tokens"].get<double>(), 1) << step;
    EXPECT_LE(step["kept_tokens"].get<double>(), 40) << step;
    EXPECT_EQ(step["max_abs_logprob_diff"], 0.0);
  }
  EXPECT_NE(text(whole / "report.html").find("Tokens that were kept"), std::string::npos);
  for (const char* step : {"1", "5", "12"})
    ASSERT_EQ(tandem({"replay", whole.string(), "--step", step}), 0) << text(output());
  int replayed = 0;
  for (const Json& episode : episodes(whole)) {
    if (episode["dropped"] == "no_signal" || replayed == 2) continue;
    ASSERT_EQ(tandem({"replay", whole.string(), "--episode", dump_json(episode["episode"])}), 0) << text(output());
    ++replayed;
  }
  EXPECT_EQ(replayed, 2);

  const fs::path killed = root() / "kept-killed";
  {
    Process process(command(cut(kSteps, {"trainer.ranks=2", "rollout.workers=1"}), killed), output());
    ASSERT_TRUE(reaches_step(process, killed, 4)) << text(output());
    process.signal(SIGKILL);
    process.wait();
  }
  ASSERT_EQ(run(cut(kSteps, {"trainer.ranks=2", "rollout.workers=1"}), killed, true), 0) << text(output());
  expect_nothing_trained_twice(killed);
  EXPECT_EQ(export_digest(killed), export_digest(whole));
  // The plan cannot be changed on the way.
  EXPECT_EQ(run(cut(kSteps + 1, {"rollout.top_p=0.8"}), killed, true), 2);
  EXPECT_NE(text(output()).find("rollout.top_p"), std::string::npos) << text(output());
}

// A lag, a reference model and several updates at a temperature.
TEST_F(KeptRun, agrees_with_its_sampler_off_policy_too) {
  const fs::path run_dir = root() / "kept-lag";
  ASSERT_EQ(run({"run.steps=4", "tasks.heldout=0", kWithSignal, "trainer.max_lag=2", "trainer.epochs=2",
                 "rollout.temperature=0.8", "rollout.min_p=0.05", "algorithm.kl.estimator=k3",
                 "algorithm.kl.coefficient=0.01", "trainer.keep_checkpoints=all"},
                run_dir),
            0)
      << text(output());
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
  ASSERT_EQ(tandem({"replay", run_dir.string(), "--step", "3"}), 0) << text(output());
}

TEST_F(KeptRun, on_a_device_agrees_with_its_own_sampler) {
  for (const char* device : {"emulated:0", "emulated:0:tensor"}) {
    const fs::path run_dir = root() / device;
    ASSERT_EQ(run(cut(2, {"device=" + std::string(device)}), run_dir), 0) << text(output());
    expect_same_logprobs(run_dir);
    for (const Json& step : steps_of(run_dir)) EXPECT_GT(step["truncated_share"].get<double>(), 0.5) << step;
    ASSERT_EQ(tandem({"replay", run_dir.string(), "--step", "2"}), 0) << text(output());
  }
}

TEST_F(KeptRun, is_refused_where_numbers_are_none_or_episodes_have_no_room) {
  // Only the config is read before that is seen.
  const fs::path model = root() / "many-tokens";
  fs::remove_all(model);
  fs::copy(fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "models" / "qwen3-moe", model);
  Json config = json(model / "config.json");
  config["vocab_size"] = 150'000;
  ASSERT_TRUE(write_file(model / "config.json", dump_json(config)));
  for (const char* wrong : {"rollout.top_p=0", "rollout.top_p=1.5", "rollout.top_k=-1", "rollout.min_p=1"})
    EXPECT_EQ(run({wrong, "--dry-run"}, root() / "wrong"), 2) << wrong;
  ASSERT_EQ(run({"rollout.top_p=0.9", "--dry-run"}, root() / "dry"), 0) << text(output());
  EXPECT_EQ(run({"model.path=" + model.string(), "rollout.top_p=0.9", "rollout.max_tokens=100000", "--dry-run"},
                root() / "long"),
            2);
  EXPECT_NE(text(output()).find("set rollout.top_k to"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
