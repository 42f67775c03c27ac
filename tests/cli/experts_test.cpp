// A mixture of experts through the commands: scored on both paths, warm-started, trained by a run, exported.
#include <fstream>

#include "base/random.h"
#include "model/weights.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Experts : public RunTest {
 protected:
  static void SetUpTestSuite() {
    RunTest::SetUpTestSuite();
    auto config = model::read_config(root() / "model");
    ASSERT_TRUE(config) << config.error().to_string();
    config->family = "qwen3_moe";
    config->qk_norm = true;
    config->experts = {.count = 6, .chosen = 2, .width = 96, .normalise = true, .except = {0}};
    auto weights = model::Weights::create(*config, false);
    ASSERT_TRUE(weights) << weights.error().to_string();
    model::randomise(*weights, 1);
    ASSERT_TRUE(model::save_weights(*weights, model_dir(), root() / "model"));
  }
  static fs::path model_dir() { return root() / "experts"; }
};

TEST_F(Experts, are_scored_with_the_same_bits_by_engine_and_trainer) {
  const fs::path golden = TANDEM_SOURCE_DIR "/tests/golden/models/qwen3-moe";
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
  EXPECT_EQ(scores[0], scores[1]);
}

TEST_F(Experts, are_counted_all_and_those_that_a_token_uses) {
  ASSERT_EQ(tandem({"inspect", model_dir(), "--json"}), 0) << text(output());
  const Json found = json(output());
  EXPECT_EQ(found["family"], "qwen3_moe");
  EXPECT_EQ(found["parameters"].get<int64_t>() - found["active_parameters"].get<int64_t>(), 4 * 3 * 96 * 128);
  ASSERT_EQ(tandem({"inspect", model_dir()}), 0) << text(output());
  EXPECT_NE(text(output()).find("6 of 96, 2 of each token"), std::string::npos) << text(output());
}

TEST_F(Experts, are_warm_started_trained_by_a_run_and_exported) {
  const fs::path start = root() / "warm", run_dir = root() / "run", out = root() / "exported";
  ASSERT_EQ(tandem({"sft", "model=" + model_dir().string(), "out=" + start.string(), "kinds=[echo]",
                    "transcripts_per_step=4", "stages.first.steps=3", "stages.second.steps=0"}),
            0)
      << text(output());
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=0", "model.path=" + start.string()}, run_dir), 0) << text(output());
  const Json summary = json(run_dir / "summary.json");
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["logprob"]["max_abs_diff"], 0.0);
  EXPECT_GT(summary["logprob"]["tokens_compared"].get<int>(), 0);
  expect_books_to_agree(run_dir);
  ASSERT_EQ(tandem({"export", run_dir, out, "--verify", "--json"}), 0) << text(output());
  EXPECT_EQ(json(output())["verified"], true);
  EXPECT_EQ(json(out / "config.json")["num_experts"], 6);
}

}  // namespace
}  // namespace tandem
