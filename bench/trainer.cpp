#include <fmt/format.h>

#include "base/random.h"
#include "bench/measure.h"
#include "trainer/learner.h"

namespace tandem::bench {

namespace {

// `groups` prompts of `prompt` tokens, each with `size` continuations of `said` tokens.
std::vector<trainer::Sample> samples(int groups, int size, int prompt, int said, int vocabulary) {
  std::vector<trainer::Sample> batch;
  for (int group = 0; group < groups; ++group) {
    for (int i = 0; i < size; ++i) {
      Random shared(group), own(1000 + group * size + i);
      trainer::Sample sample;
      for (int t = 0; t < prompt + said; ++t) {
        auto& random = t < prompt ? shared : own;
        sample.tokens.push_back(static_cast<int32_t>(random.below(vocabulary)));
        sample.trained.push_back(t >= prompt);
      }
      batch.push_back(std::move(sample));
    }
  }
  return batch;
}

}  // namespace

Result<std::vector<Figure>> bench_trainer(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  auto weights = TRY(load_model(settings, stream, true));
  const Limits limits = measure_limits(stream);
  const auto config = weights.config();
  const double elements = static_cast<double>(weights.layout().elements);
  auto learner = TRY(trainer::Learner::create(std::move(weights), TRY(kernels::Stream::cpu(settings.threads)), {}));

  std::vector<Figure> figures;
  // A whole step on 8 x 320 tokens of which 256 are learned from, nothing shared: what peers are measured on.
  const auto apart = samples(8, 1, 64, 256, config.vocabulary);
  const auto grouped = samples(8, 8, 224, 32, config.vocabulary);
  for (const auto& [name, batch] : {std::pair{"step, 8 x 320 tokens apart", &apart},
                                    std::pair{"step, 8 groups of 8 x 256 tokens, prompts of 224 shared", &grouped}}) {
    trainer::StepMetrics metrics;
    const double seconds = TRY(median_seconds(settings.seconds, [&]() -> Status {
      metrics = TRY(learner.imitate(*batch));
      return {};
    }));
    // Three products of the forward pass's size for every row, and the head's for rows that are learned from.
    const double flops = 3 * (body_flops(config) * static_cast<double>(metrics.tree_tokens) +
                              head_flops(config) * static_cast<double>(metrics.trained_tokens));
    const double tokens = static_cast<double>(metrics.sample_tokens);
    figures.push_back({name, tokens / seconds, "tok/s", limits.flops * tokens / flops, "arithmetic"});
  }
  // What a step costs whatever the batch: the optimizer reads 16 bytes a parameter, and the panels are written again.
  const auto one = samples(1, 1, 2, 2, config.vocabulary);
  const double seconds =
      TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(learner.imitate(one)), Status{}; }));
  figures.push_back({"optimizer and panels", 16 * elements / seconds / 1e9, "GB/s", limits.bytes / 1e9, "memory"});
  return figures;
}

}  // namespace tandem::bench
