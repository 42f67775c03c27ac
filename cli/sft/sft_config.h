// The config of `tandem sft`: training on transcripts where `data.train` names some, on pairs of answers where
// `data.preferences` does, the warm start elsewhere.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "model/executor.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/optimizer_fields.h"
#include "trainer/learn/preference_loss.h"

namespace tandem::cli {

// The value of preference.loss that trains a reward model.
inline constexpr const char* kRewardLoss = "reward";

struct WarmStartStage {
  int steps = 0;
  double learning_rate = 0, random_tool = 0, corrupt_argument = 0, dictated = 0;
};

struct SftConfig {
  std::string model = "models/SmolLM2-135M-Instruct";
  std::string out = "models/warm-start";
  uint64_t seed = 1;
  std::string device = "cpu";
  int threads = 0;
  struct {
    std::vector<std::string> train, preferences, validation;
    double validation_share = 0;
    int max_tokens = 4096;
    double min_reward = 1;
    std::string tool_calls = "template";
    std::string now;
    std::string on_error = "stop";
  } data;
  struct Training : trainer::OptimizerConfig {
    Training() {
      learning_rate = 2e-5;
      schedule = "cosine";
      checkpoint_every = 100;
    }
    int epochs = 3;
    int steps = 0;
    int tokens_per_step = 8192;
    double warmup_share = 0.05;
  } trainer;
  struct {
    int every = 50;
    int patience = 0;
  } validation;
  struct {
    std::string loss = "sigmoid";
    double beta = 0.1, label_smoothing = 0, sft = 0;
  } preference;
  struct {
    double learning_rate = 1e-3, margin = 0, center_rewards_coefficient = 0;
    bool trunk = true;
  } reward;
  trainer::LowRankSettings lora;
  // For the warm start.
  int transcripts_per_step = 16;
  int max_tokens = 1024;
  int warmup_steps = 5;
  double checkpoint_seconds = 30;
  std::vector<std::string> kinds;
  WarmStartStage first{
      .steps = 40, .learning_rate = 1e-4, .random_tool = 0.05, .corrupt_argument = 0.15, .dictated = 0.1};
  WarmStartStage second{.steps = 80, .learning_rate = 1.2e-4, .random_tool = 0.1};

  bool on_pairs() const { return !data.preferences.empty(); }
  // A reward model, not a policy.
  bool on_rewards() const { return on_pairs() && preference.loss == kRewardLoss; }
  // Or on pairs of them: both have the same keys.
  bool on_transcripts() const { return !data.train.empty() || on_pairs(); }
};

Schema schema_of(SftConfig& config);

// Keys of the one kind of training that were set for the other, and values that contradict each other.
Status check(const SftConfig& config, const Schema& schema);

// Optimizer settings for training on transcripts, with `steps` steps.
Result<trainer::OptimizerSettings> optimizer_of(const SftConfig& config, int64_t steps);
Result<trainer::PreferenceLoss> preference_of(const SftConfig& config);
// Where it computes; logs what `auto` stands for.
Result<model::Place> place_of(const SftConfig& config);

}  // namespace tandem::cli
