#include "trainer/torch/function_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/random.h"
#include "trainer/learn/algorithm_config.h"
#include "trainer/learn/batch_loss.h"

namespace tandem::trainer {
namespace {

using testing::HasSubstr;

class TorchLossTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto library = find_torch(); !library) GTEST_SKIP() << library.error().message();
    ASSERT_TRUE(make_folder(folder_));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& content) {
    const fs::path path = folder_ / ("loss" + std::to_string(++files_) + ".py");
    EXPECT_TRUE(write_file(path, content));
    return path.string();
  }
  // A function of a body of one line, of the usual tensors.
  std::string body(const std::string& returned, const std::string& before = "pass") {
    return file("def loss(logprobs, old_logprobs, rollout_logprobs, advantages, mask):\n    " + before +
                "\n    return " + returned + "\n");
  }
  static Algorithm algorithm_of(const std::string& script, std::vector<std::string> options = {}) {
    return *algorithm_from_json({{"name", "torch"}, {"script", script}, {"options", std::move(options)}});
  }
  static Result<BatchLoss> computed(const Algorithm& algorithm, const LossBatch& batch, int64_t step = 1) {
    return batch_loss(batch, algorithm, TRY(load_functions(algorithm)), step);
  }
  std::string mistake(const std::string& script, std::vector<std::string> options = {}) {
    const auto result = computed(algorithm_of(script, std::move(options)), batch(1));
    EXPECT_FALSE(result.has_value()) << script;
    if (result) return "";
    EXPECT_EQ(result.error().code(), Code::kInvalid);
    return result.error().to_string();
  }

  // The error of a call that goes on for hundreds of times as long as it may, on any machine. LibTorch has made all
  // that it makes at first before.
  std::string computed_without_end() {
    const std::string script = file(
        "def loss(logprobs, mask, steps: float):\n"
        "    x = logprobs\n"
        "    for i in range(int(steps)):\n"
        "        x = x * 1.0\n"
        "    return (x * mask).sum()\n");
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(computed(algorithm_of(script, {"steps=3"}), batch(1)).has_value());
    Algorithm algorithm = algorithm_of(script, {"steps=100000"});
    algorithm.torch.seconds = 0.001;
    const auto result = computed(algorithm, batch(1));
    EXPECT_FALSE(result.has_value());
    return result ? "" : result.error().to_string();
  }

  static LossBatch batch(uint64_t seed, double spread = 0.3, size_t rows = 5, size_t length = 7) {
    Random random(seed);
    LossBatch batch{.rows = rows, .length = length};
    for (size_t i = 0; i < rows * length; ++i) {
      batch.mask.push_back(random.below(3) > 0);
      batch.logprobs.push_back(-std::exp(random.normal()));
      batch.rollout_logprobs.push_back(batch.logprobs.back() + spread * random.normal());
      batch.rewards.push_back(random.normal());
    }
    for (size_t row = 0; row < rows; ++row) batch.groups.push_back(row < 3 ? 7 : static_cast<int64_t>(row));
    return batch;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("tandem-torch-test-" + std::to_string(::getpid()));
  int files_ = 0;
};

class TorchAdvantagesTest : public TorchLossTest {
 protected:
  static Algorithm advantages_of(const std::string& script, Json more = Json::object()) {
    more["advantage"] = "torch";
    more["advantage_script"] = script;
    auto algorithm = algorithm_from_json(more);
    EXPECT_TRUE(algorithm.has_value()) << algorithm.error().to_string();
    return *algorithm;
  }
};

void expect_same(const BatchLoss& got, const BatchLoss& expected, const std::string& where) {
  const auto near = [&](double a, double b) { EXPECT_NEAR(a, b, 1e-9 * std::max(1.0, std::abs(b))) << where; };
  near(got.loss, expected.loss);
  ASSERT_EQ(got.grad_logprobs.size(), expected.grad_logprobs.size());
  for (size_t i = 0; i < got.grad_logprobs.size(); ++i) near(got.grad_logprobs[i], expected.grad_logprobs[i]);
  EXPECT_EQ(got.advantages, expected.advantages);
}

TEST_F(TorchLossTest, a_script_of_grpo_is_the_built_in_grpo) {
  const std::string script = TANDEM_SOURCE_DIR "/examples/losses/grpo.py";
  for (const char* aggregation : {"token_mean", "seq_mean_token_mean", "seq_mean_token_sum"}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const LossBatch rows = batch(seed, seed % 2 ? 0.05 : 30);  // ratios that overflow too
      const auto built_in = *algorithm_from_json({{"name", "grpo"}, {"aggregation", aggregation}});
      const auto own = *algorithm_from_json({{"name", "torch"},
                                             {"script", script},
                                             {"advantage", "grpo"},
                                             {"aggregation", aggregation},
                                             {"options", {"clip_high=0.2"}}});
      const auto got = computed(own, rows);
      ASSERT_TRUE(got.has_value()) << got.error().to_string();
      if (seed % 2) expect_same(*got, *batch_loss(rows, built_in), std::string(aggregation) + std::to_string(seed));
      EXPECT_TRUE(got->function_metrics.contains("clipped"));
    }
  }
}

TEST_F(TorchLossTest, nothing_that_counts_and_single_tokens_are_batches_too) {
  const std::string script = TANDEM_SOURCE_DIR "/examples/losses/grpo.py";
  const auto algorithm = *algorithm_from_json({{"name", "torch"}, {"script", script}, {"advantage", "grpo"}});
  const auto built_in = *algorithm_named("grpo");
  LossBatch one = batch(1, 0.1, 1, 1);
  one.mask = {1};
  const auto of_one = computed(algorithm, one);
  ASSERT_TRUE(of_one.has_value()) << of_one.error().to_string();
  expect_same(*of_one, *batch_loss(one, built_in), "one token");
  LossBatch row = batch(2);
  std::fill_n(row.mask.begin() + 7, 7, 0);  // a row without tokens
  const auto of_row = computed(algorithm, row);
  ASSERT_TRUE(of_row.has_value()) << of_row.error().to_string();
  expect_same(*of_row, *batch_loss(row, built_in), "an empty row");
}

TEST_F(TorchLossTest, a_scalar_is_taken_as_it_is_and_the_step_and_options_arrive) {
  const std::string script = file(
      "def loss(logprobs, mask, groups, segments, rewards, step: int, scale: float, power: int = 2, on: bool = True, "
      "name: str = 'x'):\n"
      "    assert on and name == 'long name' and step == 3 and power == 3\n"
      "    assert groups.shape[0] == rewards.shape[0] and int(segments.max()) >= 0\n"
      "    return (logprobs * mask).sum() * scale\n");
  const auto result = computed(algorithm_of(script, {"scale=0.5", "power=3", "name=long name"}), batch(3), 3);
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  const LossBatch rows = batch(3);
  double sum = 0;
  for (size_t i = 0; i < rows.mask.size(); ++i) {
    sum += rows.mask[i] ? rows.logprobs[i] : 0;
    EXPECT_EQ(result->grad_logprobs[i], rows.mask[i] ? 0.5 : 0);
  }
  EXPECT_DOUBLE_EQ(result->loss, 0.5 * sum);
}

TEST_F(TorchLossTest, what_is_no_loss_is_named) {
  EXPECT_THAT(mistake(body("(logprobs * mask).sum(1)")), HasSubstr("shape [5], neither a scalar nor [5, 7]"));
  EXPECT_THAT(mistake(body("(logprobs * mask).to(torch.float16)")), HasSubstr("Half, not of float64"));
  EXPECT_THAT(mistake(body("torch.log(logprobs * 0)")), HasSubstr("the loss of token [0]["));
  EXPECT_THAT(mistake(body("(logprobs * mask), {'m': logprobs.masked_select(mask)}")),
              HasSubstr("numbers, not one: take its mean()"));
  EXPECT_THAT(mistake(body("(logprobs * mask).sum() * float('nan')")), HasSubstr("the loss is nan"));
  EXPECT_THAT(mistake(body("torch.sqrt(torch.where(mask, logprobs * 0, logprobs * 0)).sum()")),
              HasSubstr("the gradient of logprobs[0]["));
  EXPECT_THAT(mistake(body("(logprobs.detach() * mask).sum()")), HasSubstr("without gradient"));
  EXPECT_THAT(mistake(body("logprobs.sum()")), HasSubstr("which do not count"));
  EXPECT_THAT(mistake(body("(logprobs * mask).sum()", "advantages.mul_(2)")),
              HasSubstr("changed its input advantages in place"));
  EXPECT_THAT(mistake(body("(logprobs * mask).sum()", "logprobs.add_(1)")),
              HasSubstr("changed its input logprobs in place; work on a clone"));
  EXPECT_THAT(mistake(body("logprobs[9].sum()")), HasSubstr("out of range"));
  EXPECT_THAT(mistake(body("(logprobs * mask).sum()", "assert False, 'my own words'")), HasSubstr("my own words"));
  EXPECT_THAT(mistake(body("1.5")), HasSubstr("returns neither a Tensor nor"));
}

TEST_F(TorchLossTest, a_file_that_cannot_be_used_is_named_with_its_place) {
  EXPECT_THAT(mistake(file("def los(logprobs):\n    return logprobs\n")),
              HasSubstr("defines no function loss, only los"));
  EXPECT_THAT(mistake(file("import torch\n\ndef loss(logprobs):\n    return logprobs.foo()\n")),
              testing::AllOf(HasSubstr("foo"), HasSubstr("line 4")));
  EXPECT_THAT(mistake((folder_ / "none.py").string()), HasSubstr("cannot be read"));
  EXPECT_THAT(mistake(file("PK no zip")), HasSubstr("loss"));
  EXPECT_THAT(mistake(file("def loss(logprobs, beta: float):\n    return logprobs * beta\n")),
              HasSubstr("the parameter beta is neither an input nor set"));
  EXPECT_THAT(mistake(body("logprobs * mask"), {"beta=1"}), HasSubstr("has no parameter \"beta\"; it has none"));
  const std::string beta = file("def loss(logprobs, mask, beta: float = 1.0):\n    return logprobs * beta * mask\n");
  EXPECT_THAT(mistake(beta, {"beta=x"}), HasSubstr("beta is \"x\", not a number"));
  EXPECT_THAT(mistake(beta, {"beta"}), HasSubstr("not NAME=VALUE"));
  EXPECT_THAT(mistake(file("def loss(logprobs, ref_logprobs):\n    return logprobs - ref_logprobs\n")),
              HasSubstr("algorithm.reference: true"));
}

// Both cut the function off, and the error named another cause.
TEST_F(TorchLossTest, comments_and_lines_of_texts_may_stand_in_the_first_column) {
  const std::string plain = file("def loss(logprobs, mask):\n    return -logprobs * mask\n");
  const std::string commented = file(
      "X = \"\"\"\ndef other(x):\n\"\"\"\n"
      "def loss(logprobs, mask):\n"
      "    \"\"\"A text of its own:\ndef is not one here  # '''\n\"\"\"\n"
      "# a remark about \"\"\" and more\n"
      "    return -logprobs * mask\n");
  const auto one = computed(algorithm_of(plain), batch(1)), other = computed(algorithm_of(commented), batch(1));
  ASSERT_TRUE(one) << one.error().to_string();
  ASSERT_TRUE(other) << other.error().to_string();
  EXPECT_EQ(other->loss, one->loss);
}

TEST_F(TorchLossTest, what_counts_is_what_the_batch_says_and_not_what_a_function_made_of_its_mask) {
  const auto loss = [&](const std::string& before) {
    const auto made = computed(algorithm_of(body("-logprobs", before)), batch(1));
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? made->loss : 0;
  };
  EXPECT_EQ(loss("mask.data.zero_()"), loss("pass"));
}

TEST_F(TorchLossTest, a_script_that_never_ends_is_refused) {
  EXPECT_THAT(mistake("/dev/zero"), HasSubstr("is no regular file"));
}

TEST_F(TorchLossTest, a_function_that_does_not_return_is_an_error) {
  EXPECT_THAT(computed_without_end(), HasSubstr("did not return within 0.001 s"));
}

// The function still runs while the process ends: with the destructors of LibTorch's statics it ended with SIGSEGV.
TEST_F(TorchLossTest, a_process_with_a_function_that_does_not_return_ends_with_its_own_code) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [&] {
    std::fputs(computed_without_end().c_str(), stderr);
    fs::remove_all(folder_);
    std::exit(7);
  };
  for (int i = 0; i < 5; ++i) EXPECT_EXIT(end(), testing::ExitedWithCode(7), "did not return within 0.001 s");
}

TEST_F(TorchLossTest, the_same_batch_has_the_same_bits_however_often_it_was_computed) {
  const auto algorithm = algorithm_of(TANDEM_SOURCE_DIR "/examples/losses/grpo.py");
  const auto function = load_functions(algorithm);
  ASSERT_TRUE(function.has_value()) << function.error().to_string();
  const LossBatch rows = batch(4, 0.3, 16, 64);
  const auto first = batch_loss(rows, algorithm, *function, 1);
  for (int i = 0; i < 5; ++i) {
    const auto again = batch_loss(rows, algorithm, *function, 1);
    EXPECT_EQ(again->loss, first->loss);
    EXPECT_EQ(again->grad_logprobs, first->grad_logprobs);
  }
}

TEST_F(TorchLossTest, a_run_keeps_the_file_that_it_began_with) {
  const std::string script = body("logprobs * mask");
  const Algorithm algorithm = algorithm_of(script);
  const fs::path run = folder_ / "run";
  ASSERT_TRUE(make_folder(run));
  ASSERT_TRUE(functions_of_run(algorithm, run).has_value());
  ASSERT_TRUE(functions_of_run(algorithm, run).has_value());
  ASSERT_TRUE(write_file(script, "def loss(logprobs):\n    return logprobs * 2\n"));
  EXPECT_THAT(functions_of_run(algorithm, run).error().to_string(), HasSubstr("is not what the run began with"));
  EXPECT_TRUE(recorded_functions(algorithm, run).has_value());
  fs::remove(script);
  EXPECT_TRUE(functions_of_run(algorithm, run).has_value());
}

TEST_F(TorchAdvantagesTest, a_script_of_grpo_has_the_advantages_of_the_built_in_one) {
  const std::string script = file(
      "def advantages(rewards, groups, mask):\n"
      "    same = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(torch.float64)\n"
      "    count = same.sum(1)\n"
      "    centred = rewards - same.matmul(rewards) / count\n"
      "    mean = torch.where(count > 1, same.matmul(rewards) / count, torch.zeros_like(count))\n"
      "    squares = same * (rewards.unsqueeze(0) - mean.unsqueeze(1)) ** 2\n"
      "    deviation = torch.sqrt(squares.sum(1) / (count - 1).clamp(min=1))\n"
      "    scale = torch.where(count > 1, deviation + 1e-6, torch.ones_like(count))\n"
      "    return (rewards - mean) / scale, {'groups': count.max()}\n");
  for (const bool whitened : {false, true}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const LossBatch rows = batch(seed);
      const auto built_in = *algorithm_from_json({{"name", "grpo"}, {"whiten_advantages", whitened}});
      const auto own = advantages_of(script, {{"name", "grpo"}, {"whiten_advantages", whitened}});
      const auto got = computed(own, rows), expected = batch_loss(rows, built_in);
      ASSERT_TRUE(got.has_value()) << got.error().to_string();
      for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_NEAR(got->advantages[i], expected->advantages[i], 1e-9);
      EXPECT_NEAR(got->loss, expected->loss, 1e-9);
      EXPECT_EQ(got->function_metrics.at("advantage_groups"), 3);
    }
  }
}

TEST_F(TorchAdvantagesTest, one_a_token_is_taken_where_the_token_counts) {
  const std::string script = file(
      "def advantages(token_rewards, segments, old_logprobs, scale: float):\n"
      "    return scale * token_rewards + 0.0 * segments / 0.0\n");
  LossBatch rows = batch(3);
  EXPECT_THAT(computed(advantages_of(script, {{"advantage_options", {"scale=2"}}}), rows).error().to_string(),
              HasSubstr("is not finite"));
  const std::string good = file("def advantages(token_rewards, scale: float):\n    return scale * token_rewards\n");
  const auto got = computed(advantages_of(good, {{"advantage_options", {"scale=2"}}}), rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_EQ(got->advantages[i], rows.mask[i] ? 2 * rows.rewards[i] : 0);
}

TEST_F(TorchAdvantagesTest, what_is_none_is_an_error_in_plain_words) {
  const auto mistake = [&](const std::string& parameters, const std::string& returned) {
    const auto result =
        computed(advantages_of(file("def advantages(" + parameters + "):\n    return " + returned + "\n")), batch(1));
    EXPECT_FALSE(result.has_value()) << returned;
    return result ? "" : result.error().to_string();
  };
  EXPECT_THAT(mistake("rewards", "rewards.sum()"), HasSubstr("neither [5], one a row, nor [5, 7], one a token"));
  EXPECT_THAT(mistake("groups", "groups"), HasSubstr("returned a tensor of Long, not of float64"));
  EXPECT_THAT(mistake("rewards", "rewards.to(torch.float32)"), HasSubstr("returned a tensor of Float, not of float64"));
  EXPECT_THAT(mistake("rewards", "rewards / 0"), HasSubstr("is not finite"));
  EXPECT_THAT(mistake("rewards", "rewards.add_(1)"), HasSubstr("changed its input rewards in place"));
  EXPECT_THAT(mistake("advantages", "advantages"), HasSubstr("takes advantages, which were not given"));
  EXPECT_THAT(mistake("ref_logprobs", "ref_logprobs"), HasSubstr("algorithm.reference: true"));
  EXPECT_THAT(computed(advantages_of(body("logprobs")), batch(1)).error().to_string(),
              HasSubstr("defines no function advantages, only loss"));
  EXPECT_THAT(algorithm_from_json({{"advantage", "torch"}}).error().to_string(),
              HasSubstr("needs algorithm.advantage_script or algorithm.advantage_library"));
  EXPECT_THAT(algorithm_from_json({{"advantage_script", "a.py"}}).error().to_string(),
              HasSubstr("algorithm.advantage is dr_grpo"));
}

TEST_F(TorchAdvantagesTest, loss_and_advantages_may_be_of_one_file) {
  const std::string both = file(
      "def advantages(rewards):\n"
      "    return rewards\n\n\n"
      "def loss(logprobs, advantages, mask):\n"
      "    return -(logprobs * advantages * mask).sum(), {'rows': advantages.sum()}\n");
  const LossBatch rows = batch(2);
  const auto algorithm = advantages_of(both, {{"name", "torch"}, {"script", both}});
  const auto got = computed(algorithm, rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_EQ(got->grad_logprobs[i], -got->advantages[i]);
  const fs::path run = folder_ / "run";
  ASSERT_TRUE(make_folder(run));
  ASSERT_TRUE(functions_of_run(algorithm, run).has_value());
  EXPECT_TRUE(fs::exists(run / "loss" / fs::path(both).filename()));
  EXPECT_TRUE(fs::exists(run / "advantages" / fs::path(both).filename()));
  fs::remove(both);
  EXPECT_TRUE(recorded_functions(algorithm, run).has_value());
}

TEST_F(TorchAdvantagesTest, of_ranks_count_those_of_a_group_that_a_sample_beats) {
  LossBatch rows = batch(7);
  std::ranges::fill(rows.mask, 1);
  std::ranges::fill(rows.rewards, 0);
  for (size_t row = 0; row < rows.rows; ++row) rows.rewards[row * rows.length + 6] = std::vector{3, 100, 3, 5, 5}[row];
  const auto got = computed(advantages_of(TANDEM_SOURCE_DIR "/examples/losses/ranks.py"), rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  const std::vector<double> expected = {-0.5, 1, -0.5, 0, 0};  // three of a group, and two alone
  for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_EQ(got->advantages[i], expected[i / rows.length]);
}

TEST_F(TorchAdvantagesTest, of_effort_take_the_metrics_of_episodes) {
  LossBatch rows = batch(7);
  std::ranges::fill(rows.mask, 1);
  std::ranges::fill(rows.rewards, 0);
  for (size_t row = 0; row < rows.rows; ++row) rows.rewards[row * rows.length + 6] = std::vector{1, 1, 0, 1, 0}[row];
  rows.metrics["tool_calls"] = {2, 6, 9, 4, 1};
  const Algorithm algorithm = advantages_of(TANDEM_SOURCE_DIR "/examples/losses/effort.py");
  const auto got = computed(algorithm, rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  const double mean = (0.9 + 0.7) / 3;  // a call costs 0.05 where something was earned
  const std::vector<double> expected = {0.9 - mean, 0.7 - mean, -mean, 0, 0};
  for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_NEAR(got->advantages[i], expected[i / rows.length], 1e-12);
  rows.metrics.clear();
  const auto without = computed(algorithm, rows);
  ASSERT_FALSE(without.has_value());
  EXPECT_THAT(without.error().to_string(), HasSubstr("tool_calls"));
}

TEST_F(TorchLossTest, an_exception_is_told_by_its_line_and_words_without_the_stack) {
  const std::string found = mistake(body("advantages.sum()", "assert advantages.size(0) == 0, 'no such luck'"));
  EXPECT_THAT(found, AllOf(HasSubstr("line 2: AssertionError: no such luck"), Not(HasSubstr("Traceback"))));
}

TEST_F(TorchAdvantagesTest, metrics_are_a_dictionary_of_tensors_that_stay_as_they_are) {
  LossBatch rows = batch(3);
  rows.metrics["turns"] = {1, 2, 3, 4, 5};
  const auto mistake_of = [&](const std::string& type, const std::string& line) {
    const auto got = computed(
        advantages_of(file("def advantages(rewards, metrics: " + type + "):\n    " + line + "\n    return rewards\n")),
        rows);
    EXPECT_FALSE(got.has_value()) << line;
    return got ? std::string() : got.error().to_string();
  };
  EXPECT_THAT(mistake_of("Tensor", "pass"), HasSubstr("metrics is a Dict[str, Tensor]"));
  EXPECT_THAT(mistake_of("Dict[str, Tensor]", "metrics['turns'].mul_(2)"), HasSubstr("metrics turns in place"));
  EXPECT_THAT(mistake_of("Dict[str, Tensor]", "rewards = rewards + metrics['calls']"),
              AllOf(HasSubstr("has no \"calls\"; metrics has"), HasSubstr("turns"), Not(HasSubstr("Traceback"))));
}

#ifdef TANDEM_EXAMPLE_LOSSES
TEST_F(TorchAdvantagesTest, a_library_in_cpp_makes_them_too) {
  LossBatch rows = batch(5, 0.1);
  const auto got = computed(*algorithm_from_json({{"advantage", "torch"},
                                                  {"advantage_library", TANDEM_EXAMPLE_LOSSES "turn_credit.so"},
                                                  {"advantage_options", {"discount=0.5"}}}),
                            rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  // A sample alone in its group has nothing to be compared with: each of its turns is its own baseline.
  for (size_t i = 3 * rows.length; i < rows.mask.size(); ++i) EXPECT_EQ(got->advantages[i], 0);
  EXPECT_THAT(got->advantages, testing::Contains(testing::Ne(0)));
}

TEST_F(TorchLossTest, a_library_in_cpp_is_a_loss_too) {
  const auto own = [](std::vector<std::string> options) {
    return *algorithm_from_json(
        {{"name", "torch"}, {"library", TANDEM_EXAMPLE_LOSSES "turn_credit.so"}, {"options", std::move(options)}});
  };
  // One turn a row and one reward at its end: credit by the turn is a sequence's ratio with a baseline of the group.
  LossBatch rows = batch(5, 0.1);
  std::ranges::fill(rows.mask, 1);
  std::ranges::fill(rows.rewards, 0);
  for (size_t row = 0; row < rows.rows; ++row) rows.rewards[row * rows.length + 6] = row == 1;
  const auto got = computed(own({"clip=0.9"}), rows);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  const auto expected = batch_loss(rows, *algorithm_from_json({{"name", "gspo"},
                                                               {"advantage", "dr_grpo"},
                                                               {"clip_low", 0.9},
                                                               {"clip_high", 0.9},
                                                               {"aggregation", "token_mean"}}));
  // A group of one has its reward as advantage there, and nothing here: its rewards are 0.
  EXPECT_NEAR(got->loss, expected->loss, 1e-12);
  for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_NEAR(got->grad_logprobs[i], expected->grad_logprobs[i], 1e-12);
  EXPECT_EQ(got->function_metrics.at("turns"), 5);
  EXPECT_THAT(computed(own({"clip=no"}), rows).error().to_string(), HasSubstr("clip is \"no\", not a number"));
  for (const char* text : {"nan", "inf", "-inf"})
    EXPECT_THAT(computed(own({std::string("clip=") + text}), rows).error().to_string(),
                HasSubstr("not a finite number"));
  rows.advantages = rows.rewards;
  rows.rewards.clear();
  EXPECT_THAT(computed(own({}), rows).error().to_string(), HasSubstr("turn_credit needs rewards"));
}

TEST_F(TorchLossTest, examples_have_the_same_numbers_in_cpp_and_in_torchscript) {
  for (const std::string name : {"drpo", "entropy_band", "turn_credit"}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const LossBatch rows = batch(seed, seed % 2 == 0 ? 0.05 : 1);
      const auto script = computed(algorithm_of(TANDEM_SOURCE_DIR "/examples/losses/" + name + ".py"), rows);
      ASSERT_TRUE(script.has_value()) << script.error().to_string();
      const auto library =
          computed(*algorithm_from_json({{"name", "torch"}, {"library", TANDEM_EXAMPLE_LOSSES + name + ".so"}}), rows);
      ASSERT_TRUE(library.has_value()) << library.error().to_string();
      EXPECT_NEAR(script->loss, library->loss, 1e-12) << name;
      for (size_t i = 0; i < rows.mask.size(); ++i)
        EXPECT_NEAR(script->grad_logprobs[i], library->grad_logprobs[i], 1e-12) << name << " " << i;
      EXPECT_EQ(script->function_metrics.size(), library->function_metrics.size());
      for (const auto& [metric, value] : script->function_metrics)
        EXPECT_NEAR(value, library->function_metrics.at(metric), 1e-12) << name << " " << metric;
    }
  }
}

TEST_F(TorchAdvantagesTest, examples_have_the_same_numbers_in_cpp_and_in_torchscript) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const LossBatch rows = batch(seed);
    const auto library = computed(*algorithm_from_json({{"advantage", "torch"},
                                                        {"advantage_library", TANDEM_EXAMPLE_LOSSES "turn_credit.so"},
                                                        {"advantage_options", {"discount=0.5"}}}),
                                  rows);
    const auto algorithm =
        advantages_of(TANDEM_SOURCE_DIR "/examples/losses/turn_credit.py", {{"advantage_options", {"discount=0.5"}}});
    const auto script = computed(algorithm, rows);
    ASSERT_TRUE(script.has_value()) << script.error().to_string();
    ASSERT_TRUE(library.has_value()) << library.error().to_string();
    for (size_t i = 0; i < rows.mask.size(); ++i) EXPECT_NEAR(script->advantages[i], library->advantages[i], 1e-12);
  }
}
#endif

// A token whose probability moved by delta has no gradient, one that moved less is pushed on, one beyond pulled back.
TEST_F(TorchLossTest, of_drpo_fades_as_a_probability_moves_and_pulls_back_beyond_delta) {
  const auto gradient = [&](double before, double now, double advantage) {
    LossBatch rows{.rows = 1, .length = 1};
    rows.mask = {1};
    rows.logprobs = {std::log(now)};
    rows.rollout_logprobs = {std::log(before)};
    rows.advantages = {advantage};
    const auto got = computed(algorithm_of(TANDEM_SOURCE_DIR "/examples/losses/drpo.py", {"delta=0.2"}), rows);
    EXPECT_TRUE(got.has_value()) << got.error().to_string();
    return got ? got->grad_logprobs[0] : 0;
  };
  const auto expected = [](double before, double now, double advantage) {
    return -advantage * (1 - (advantage > 0 ? 1 : -1) * (now - before) / 0.2) * now / before;
  };
  for (const double advantage : {2.0, -0.5}) {
    for (const double now : {0.05, 0.1, 0.3, 0.5, 0.7, 0.9})
      EXPECT_NEAR(gradient(0.5, now, advantage), expected(0.5, now, advantage), 1e-12) << now << " " << advantage;
  }
  EXPECT_NEAR(gradient(0.5, 0.7, 1), 0, 1e-12);
  EXPECT_LT(gradient(0.5, 0.6, 1), 0) << "pushed on";
  EXPECT_GT(gradient(0.5, 0.8, 1), 0) << "pulled back";
  EXPECT_LT(gradient(0.5, 0.2, -1), 0) << "pulled back";
}

TEST(TorchLoss, a_machine_without_the_library_says_what_to_run) {
  if (find_torch()) GTEST_SKIP() << "libtandem_torch.so is here";
  const auto loaded = load_functions(*algorithm_from_json({{"name", "torch"}, {"script", "loss.py"}}));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code(), Code::kUnfit);
  EXPECT_THAT(loaded.error().to_string(), HasSubstr("scripts/with-torch"));
}

}  // namespace
}  // namespace tandem::trainer
