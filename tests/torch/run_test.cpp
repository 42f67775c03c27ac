// Runs of the real binary with functions of the user's own.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "tests/cli/run_fixture.h"
#include "trainer/torch/function_loader.h"

namespace tandem {
namespace {

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

TEST_F(TorchRun, what_a_function_prints_is_not_among_the_answers) {
  const fs::path script = folder_ / "loud.py", lines = folder_ / "lines", out = folder_ / "out";
  ASSERT_TRUE(write_file(script,
                         "def loss(logprobs, mask):\n    print(\"a loud word\")\n"
                         "    return (logprobs * mask).sum()\n"));
  ASSERT_TRUE(
      write_file(lines, R"({"logprobs":[[-1]],"rewards":[1],"groups":[0],"algorithm":{"name":"torch","script":")" +
                            script.string() + "\"}}\n"));
  const std::string command = std::string(TANDEM_BINARY) + " loss < " + lines.string() + " > " + out.string();
  ASSERT_EQ(Process({"/bin/sh", "-c", command}, said_).wait(60s), 0) << text(said_);
  const auto answer = parse_json(text(out));
  ASSERT_TRUE(answer.has_value()) << text(out);
  EXPECT_EQ((*answer)["loss"], -1.0);
  EXPECT_THAT(text(said_), testing::HasSubstr("a loud word"));
}

// The reward of an episode for all of its tokens is what reinforce++ makes without discount and whitening.
TEST_F(TorchRun, advantages_of_ones_own_have_the_bits_of_equal_built_in_ones_on_ranks_too) {
  const fs::path script = folder_ / "own.py";
  ASSERT_TRUE(write_file(script,
                         "def advantages(rewards, groups, metrics: Dict[str, Tensor]):\n"
                         "    same = groups.unsqueeze(0) == groups.unsqueeze(1)\n"
                         "    samples = same.sum(1).max()\n"
                         "    return rewards, {'samples': samples, 'turns': metrics['turns'].max()}\n"));
  const Arguments plain = {"algorithm.name=reinforce++", "algorithm.whiten_advantages=false", "algorithm.gamma=1"};
  Arguments own = plain;
  own.insert(own.end(), {"algorithm.advantage=torch", "algorithm.advantage_script=" + script.string()});
  Arguments on_ranks = own;
  on_ranks.emplace_back("trainer.ranks=2");
  ASSERT_EQ(run("built-in", plain), 0) << text(said_);
  ASSERT_EQ(run("own", own), 0) << text(said_);
  ASSERT_EQ(run("ranks", on_ranks), 0) << text(said_);
  const auto expected = steps("built-in");
  ASSERT_EQ(expected.size(), 2u);
  for (const char* name : {"own", "ranks"}) {
    const auto got = steps(name);
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i]["loss_metrics"]["advantage_samples"], 8.0) << name;
      EXPECT_GE(got[i]["loss_metrics"]["advantage_turns"].get<double>(), 1) << name;
      EXPECT_EQ(got[i]["loss"], expected[i]["loss"]) << name;
      EXPECT_EQ(got[i]["weights_digest"], expected[i]["weights_digest"]) << name;
      EXPECT_GT(got[i]["grad_norm"].get<double>(), 0) << name;
    }
  }
  fs::remove(script);
  EXPECT_EQ(tandem({"replay", (folder_ / "own").string(), "--step", "2"}), 0) << text(said_);
}

TEST_F(TorchRun, with_a_loss_of_ones_own_has_the_same_bits_once_it_was_interrupted_and_on_ranks) {
  const auto arguments = [&](const char* name, const Arguments& more) {
    Arguments all = {TANDEM_BINARY,
                     "run",
                     TANDEM_SOURCE_DIR "/configs/tiny.yaml",
                     "--run-dir",
                     (folder_ / name).string(),
                     "run.steps=20",
                     "run.deterministic=true",
                     "trainer.max_lag=0",
                     "tasks.heldout=0",
                     "trainer.groups_per_step=3",
                     "trainer.epochs=2",
                     "algorithm.name=torch",
                     "algorithm.script=" TANDEM_SOURCE_DIR "/examples/losses/drpo.py"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(Process(arguments("whole", {}), said_).wait(300s), 0) << text(said_);
  const std::string model = "model.path=" + (folder_ / "whole" / "model").string();
  {
    Process run(arguments("interrupted", {model}), said_);
    ASSERT_TRUE(within(120s, [&] { return steps("interrupted").size() >= 2; })) << text(said_);
    run.signal(SIGTERM);
    ASSERT_EQ(run.wait(120s), 75) << text(said_);
  }
  ASSERT_LT(steps("interrupted").size(), 20u);
  ASSERT_EQ(tandem({"run", "--resume", "--run-dir", (folder_ / "interrupted").string()}), 0) << text(said_);
  ASSERT_EQ(Process(arguments("ranks", {model, "trainer.ranks=2"}), said_).wait(300s), 0) << text(said_);
  const std::string exported = text(folder_ / "whole" / "export" / "model.safetensors");
  const auto whole = steps("whole");
  EXPECT_TRUE(std::ranges::any_of(whole, [](const Json& step) { return step["grad_norm"].get<double>() > 0; }));
  EXPECT_FALSE(exported.empty());
  EXPECT_TRUE(text(folder_ / "interrupted" / "export" / "model.safetensors") == exported);
  EXPECT_TRUE(text(folder_ / "ranks" / "export" / "model.safetensors") == exported);
}

}  // namespace
}  // namespace tandem
