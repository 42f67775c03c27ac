// Benchmarks of training.
#include <fmt/format.h>

#include "base/buffer.h"
#include "base/random.h"
#include "bench/measure.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/tape.h"

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

// Forward and backward pass of one layer, without head and optimizer: of a model of one layer and next to no
// vocabulary.
Result<Figure> block_figure(const Settings& settings, model::ModelConfig config, const Limits& limits) {
  constexpr int kTokens = 1024;
  config.layers = 1;
  config.vocabulary = 64;
  auto stream = TRY(settings.place().host_stream());
  auto weights = TRY(model::Weights::create(config, true, settings.weights));
  model::randomise(weights, 1);
  TRY(settings.place().ready(weights));
  std::vector<int32_t> tokens(kTokens);
  std::vector<trainer::TokenPick> picks;
  for (int i = 0; i < kTokens; ++i) {
    tokens[i] = i * 7 % config.vocabulary;
    picks.push_back({i, tokens[i]});
  }
  const std::vector<std::span<const int32_t>> samples = {tokens};
  const auto tree = trainer::merge(samples);
  const std::vector<float> gradients(kTokens, 1.0f);
  Buffer<float> grads(weights.layout().elements);
  const auto tape = settings.device.on_cpu() ? std::make_unique<trainer::Tape>(config, kTokens, weights.format())
                                             : TRY(trainer::Tape::on_device(settings.device, weights, kTokens));
  const double seconds = TRY(median_seconds(settings.seconds, [&]() -> Status {
    TRY(tape->forward(stream, weights, tree, picks));
    return tape->backward(gradients, model::slice_of("gradients", std::span(grads.data(), grads.size())));
  }));
  return Figure{"a layer forward and backward, 1024 tokens", kTokens / seconds, "tok/s",
                limits.flops / (3 * body_flops(config)), "arithmetic"};
}

}  // namespace

Result<std::vector<Figure>> bench_trainer(const Settings& settings) {
  auto weights = TRY(load_model(settings, true));
  const Limits limits = TRY(measure_limits(settings.place()));
  const auto config = weights.config();
  const double elements = static_cast<double>(weights.layout().elements);
  auto learner = TRY(trainer::Learner::create(std::move(weights), settings.place(), {}));

  std::vector<Figure> figures;
  // A whole step on 8 x 320 tokens of which 256 are learned from, nothing shared: what peers are measured on.
  const auto apart = samples(8, 1, 64, 256, config.vocabulary);
  const auto grouped = samples(8, 8, 224, 32, config.vocabulary);
  for (const auto& [name, batch] : {std::pair{"step, 8 x 320 tokens apart", &apart},
                                    std::pair{"step, 8 groups of 8 x 256 tokens, prompts of 224 shared", &grouped}}) {
    trainer::StepMetrics metrics;
    const double seconds = TRY(median_seconds(settings.seconds, [&, batch = batch]() -> Status {
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
  if (!config.experts.count) figures.push_back(TRY(block_figure(settings, config, limits)));
  return figures;
}

}  // namespace tandem::bench
