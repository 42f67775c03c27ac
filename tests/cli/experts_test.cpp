// A mixture of experts through the commands: scored on both paths, warm-started, trained by a run, exported.
#include <fstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

// The tiny model with each MLP as four experts of which a token takes two: it says what the tiny model says, so its
// episodes are not all alike and a step has something to learn from.
class Experts : public RunTest {
 protected:
  static void SetUpTestSuite() {
    RunTest::SetUpTestSuite();
    ASSERT_EQ(
        Process({"/usr/bin/env", "python3", TANDEM_SOURCE_DIR "/examples/mixture.py", root() / "model", model_dir()},
                output())
            .wait(),
        0)
        << text(output());
  }
  static fs::path model_dir() { return root() / "experts"; }
};

TEST_F(Experts, are_scored_with_the_same_bits_by_engine_and_trainer) {
  for (const char* name : {"qwen3-moe", "glm4-moe", "deepseek-v3", "deepseek-v3-plain", "kimi-k2"}) {
    const fs::path golden = fs::path(TANDEM_SOURCE_DIR "/tests/golden/models") / name;
    std::ofstream lines(root() / "lines");
    const Json expected = json(golden / "expected.json");
    for (const Json& item : expected["cases"]) lines << Json{{"tokens", item["tokens"]}}.dump() << "\n";
    lines.close();
    std::vector<std::string> scores;
    for (const char* path : {"engine", "trainer"}) {
      ASSERT_EQ(Process({TANDEM_BINARY, "score", "--model", golden, "--path", path, "--input", root() / "lines"},
                        root() / "scores")
                    .wait(),
                0)
          << text(root() / "scores");
      scores.push_back(text(root() / "scores"));
    }
    EXPECT_EQ(split(trim(scores[0]), '\n').size(), 4u);
    EXPECT_EQ(scores[0], scores[1]) << name;
  }
}

TEST_F(Experts, are_counted_all_and_those_that_a_token_uses) {
  ASSERT_EQ(tandem({"inspect", model_dir(), "--json"}), 0) << text(output());
  const Json found = json(output());
  EXPECT_EQ(found["family"], "glm4_moe");
  EXPECT_EQ(found["parameters"].get<int64_t>() - found["active_parameters"].get<int64_t>(), 2 * 2 * 3 * 256 * 128);
  ASSERT_EQ(tandem({"inspect", model_dir()}), 0) << text(output());
  EXPECT_NE(text(output()).find("4 of 256, 2 of each token"), std::string::npos) << text(output());
}

TEST_F(Experts, are_warm_started) {
  expect_warm_start_of(model_dir());
  EXPECT_EQ(json(root() / "warm" / "config.json")["n_routed_experts"], 4);
}

TEST_F(Experts, are_trained_by_a_run_whose_sampler_agrees_with_its_trainer_and_exported) {
  expect_exact_run_of(model_dir());
}

// The engines say which experts tokens went to, and the trainer takes those: with a lag, several updates and two ranks.
TEST_F(Experts, are_those_of_the_sampler_in_a_run_that_replays_routes) {
  const fs::path run_dir = root() / "routes";
  const Arguments keys = {"run.steps=3",
                          kWithSignal,
                          "tasks.heldout=0",
                          "model.path=" + model_dir().string(),
                          "trainer.replay_routes=true",
                          "trainer.max_lag=2",
                          "trainer.epochs=2",
                          "trainer.ranks=2",
                          "trainer.keep_checkpoints=all",
                          "trainer.checkpoint_every=1",
                          "trainer.learning_rate=1e-3"};
  ASSERT_EQ(run(keys, run_dir), 0) << text(output());
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
  int64_t taken = 0;
  double first_changed = -1;
  const std::string lines = text(run_dir / "metrics.jsonl");
  for (const auto text_of_line : split(trim(lines), '\n')) {
    const Json line = *parse_json(text_of_line);
    if (!line.contains("routes_taken")) continue;
    taken += line["routes_taken"].get<int64_t>();
    if (line["step"] == 1) first_changed = line["routes_changed"].get<double>();
    EXPECT_LT(line["routes_changed"].get<double>(), 0.5);
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(first_changed, 0) << "the first batch is on policy";
  EXPECT_NE(text(run_dir / "report.html").find("Routes of the sampler"), std::string::npos);
  // What was recorded is read again, and gives the same steps.
  for (const char* step : {"1", "3"})
    ASSERT_EQ(tandem({"replay", run_dir.string(), "--step", step}), 0) << text(output());
  // More steps go on from it.
  Arguments more = keys;
  more[0] = "run.steps=4";
  ASSERT_EQ(run(more, run_dir, true), 0) << text(output());
}

TEST_F(Experts, are_asked_for_where_the_model_has_some) {
  EXPECT_EQ(run({"model.path=" + (root() / "model").string(), "trainer.replay_routes=true"}, root() / "dense"), 2);
  EXPECT_NE(text(output()).find("trainer.replay_routes"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("no mixture of experts"), std::string::npos) << text(output());
  ASSERT_EQ(run({"model.path=" + model_dir().string(), "trainer.replay_routes=true", "--dry-run"}, root() / "dry"), 0)
      << text(output());
  EXPECT_NE(text(output()).find("routes of their positions"), std::string::npos) << text(output());
}

}  // namespace
}  // namespace tandem
