// The keys of the section `trainer` that the configs of `tandem run` and `tandem sft` share: how a step learns.
//
// Thread safety: as any value.
#pragma once

#include <string>

#include "base/config.h"
#include "trainer/learn/optimizer.h"

namespace tandem::trainer {

struct OptimizerConfig {
  double learning_rate = 3e-5;
  std::string schedule = "constant";
  double final_share = 0.1;
  std::string optimizer = "adamw", moments = "fp32";
  double beta1 = 0.9, beta2 = 0.95, momentum = 0.95, weight_decay = 0, max_grad_norm = 1;
  double skip_spikes = 0;
  int max_pass_tokens = 1024;
  int slots = 8;
  int checkpoint_every = 25;
};

// Warm-up of the learning rate is given in steps, or as a share of all steps.
void add_optimizer_fields(Schema& schema, OptimizerConfig& config, int& warmup_steps);
void add_optimizer_fields(Schema& schema, OptimizerConfig& config, double& warmup_share);

// A training of `steps` steps; the factors of `low_rank` are drawn by `seed`. kInvalid names the wrong key.
struct TrainingLength {
  int64_t steps = 0;
  int warmup_steps = 0;
};
Result<OptimizerSettings> optimizer_settings(const OptimizerConfig& config, const TrainingLength& length,
                                             LowRankSettings low_rank, uint64_t seed);

}  // namespace tandem::trainer
