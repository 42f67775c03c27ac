#include "trainer/learn/optimizer_fields.h"

namespace tandem::trainer {

namespace {

void add_before_warmup(Schema& s, OptimizerConfig& c) {
  s.add("trainer.optimizer", c.optimizer, "muon: Muon updates matrices between hidden layers, and AdamW the rest",
        {kOptimizerNames.begin(), kOptimizerNames.end()});
  s.add("trainer.moments", c.moments, "Number format of AdamW's moments; bf16 halves their memory",
        {kMomentNames.begin(), kMomentNames.end()});
  s.add("trainer.learning_rate", c.learning_rate, "Peak learning rate", 0, 1);
}

void add_after_warmup(Schema& s, OptimizerConfig& c) {
  s.add("trainer.schedule", c.schedule, "Decay of the learning rate from the warm-up to the last step",
        {std::begin(kDecayNames), std::end(kDecayNames)});
  s.add("trainer.final_share", c.final_share, "Share of the peak learning rate at the end of the decay", 0, 1);
  s.add("trainer.beta1", c.beta1, "beta1 of AdamW; below 1", 0, 1);
  s.add("trainer.beta2", c.beta2, "beta2 of AdamW; below 1, and at most 0.996 with moments in bf16", 0, 1);
  s.add("trainer.momentum", c.momentum, "Momentum of Muon", 0, 1);
  s.add("trainer.weight_decay", c.weight_decay, "Decoupled weight decay", 0, 1);
  s.add("trainer.max_grad_norm", c.max_grad_norm, "Gradients are clipped to this norm; 0: no clipping", 0, 1e9);
  s.add("trainer.skip_spikes", c.skip_spikes,
        "An update is skipped where the gradient norm exceeds this multiple of the median of up to 32 earlier ones; 0: "
        "never",
        0, 1e6);
  s.add("trainer.max_pass_tokens", c.max_pass_tokens, "Tokens of one forward and backward pass; bounds the memory", 64,
        1e6);
  s.add("trainer.slots", c.slots,
        "Virtual slots: a power of two; gradients are summed slot by slot, and slots as a tree", 1, 1024);
  s.add("trainer.checkpoint_every", c.checkpoint_every, "Steps between checkpoints", 1, 1e6);
}

}  // namespace

void add_optimizer_fields(Schema& schema, OptimizerConfig& config, int& warmup_steps) {
  add_before_warmup(schema, config);
  schema.add("trainer.warmup_steps", warmup_steps, "Steps of linear warm-up of the learning rate", 0, 1e6);
  add_after_warmup(schema, config);
}

void add_optimizer_fields(Schema& schema, OptimizerConfig& config, double& warmup_share) {
  add_before_warmup(schema, config);
  schema.add("trainer.warmup_share", warmup_share, "Share of the steps for linear warm-up of the learning rate", 0, 1);
  add_after_warmup(schema, config);
}

Result<OptimizerSettings> optimizer_settings(const OptimizerConfig& c, const TrainingLength& length,
                                             LowRankSettings low_rank, uint64_t seed) {
  const auto kind = TRY(optimizer_named(c.optimizer));
  const auto moments = TRY(moments_named(c.moments));
  const auto decay = TRY(decay_named(c.schedule));
  OptimizerSettings settings{.kind = kind,
                             .moments = moments,
                             .learning_rate = {.peak = c.learning_rate,
                                               .warmup_steps = length.warmup_steps,
                                               .decay = decay,
                                               .steps = length.steps,
                                               .final_share = c.final_share},
                             .beta1 = c.beta1,
                             .beta2 = c.beta2,
                             .weight_decay = c.weight_decay,
                             .momentum = c.momentum,
                             .max_grad_norm = c.max_grad_norm,
                             .skip_spikes = c.skip_spikes,
                             .low_rank = std::move(low_rank),
                             .max_pass_tokens = c.max_pass_tokens,
                             .slots = c.slots};
  settings.low_rank.seed = seed;
  TRY(check(settings));
  return settings;
}

}  // namespace tandem::trainer
