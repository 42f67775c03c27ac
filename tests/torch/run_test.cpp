// Runs of the real binary with functions of the user's own.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/run_fixture.h"
#include "trainer/torch/function_loader.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class TorchRun : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto library = trainer::find_torch(); !library) GTEST_SKIP() << library.error().message();
    ASSERT_TRUE(make_folder(folder_));
  }
  void TearDown() override { fs::remove_all(folder_); }

  int tandem(Arguments arguments) {
    arguments.insert(arguments.begin(), TANDEM_BINARY);
    return Process(arguments, said_).wait(300s);
  }
  int run(const char* name, Arguments more) {
    Arguments arguments = {"run",
                           TANDEM_SOURCE_DIR "/configs/tiny.yaml",
                           "--run-dir",
                           (folder_ / name).string(),
                           "run.steps=2",
                           "run.deterministic=true",
                           "tasks.heldout=0",
                           "tasks.floors=false",
                           "trainer.groups_per_step=3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tandem(arguments);
  }
  std::vector<Json> steps(const char* name) {
    std::vector<Json> found;
    std::istringstream lines(text(folder_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) found.push_back(parse_json(line).value_or(Json::object()));
    return found;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("tandem-torch-run-" + std::to_string(::getpid()));
  const fs::path said_ = folder_ / "said";
};

TEST_F(TorchRun, by_advantages_of_ones_own_has_the_loss_of_the_built_in_ones_and_the_same_bits_on_ranks) {
  const fs::path script = folder_ / "own.py";
  ASSERT_TRUE(write_file(script,
                         "def advantages(rewards, groups):\n"
                         "    same = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(torch.float64)\n"
                         "    return rewards - same.matmul(rewards) / same.sum(1), {'samples': same.sum(1).max()}\n"));
  const std::string own = "algorithm.advantage_script=" + script.string();
  ASSERT_EQ(run("built-in", {"algorithm.name=dr_grpo"}), 0) << text(said_);
  ASSERT_EQ(run("own", {"algorithm.name=dr_grpo", "algorithm.advantage=torch", own}), 0) << text(said_);
  ASSERT_EQ(run("ranks", {"algorithm.name=dr_grpo", "algorithm.advantage=torch", own, "trainer.ranks=2"}), 0)
      << text(said_);
  const auto expected = steps("built-in"), got = steps("own"), on_ranks = steps("ranks");
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(got.size(), 2u);
  ASSERT_EQ(on_ranks.size(), 2u);
  // The first step is of the same samples. Groups without a signal come too, and count in the denominator.
  EXPECT_NEAR(got[0]["entropy"].get<double>(), expected[0]["entropy"].get<double>(), 0.5);
  EXPECT_GT(got[0]["grad_norm"].get<double>(), 0);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]["loss_metrics"]["advantage_samples"], 8.0);
    EXPECT_EQ(on_ranks[i]["loss"], got[i]["loss"]);
    EXPECT_EQ(on_ranks[i]["weights_digest"], got[i]["weights_digest"]);
  }
  fs::remove(script);
  EXPECT_EQ(tandem({"replay", (folder_ / "own").string(), "--step", "2"}), 0) << text(said_);
}

}  // namespace
}  // namespace tandem
