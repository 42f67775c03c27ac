// Decoding with LoRA adapters beside the weights, several in one batch, turn by turn with decoding without.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/random.h"
#include "bench/engine_parts.h"
#include "model/live_adapter.h"
#include "rollout/engine/engine.h"

namespace tandem::bench {

namespace {

constexpr int kRank = 16, kSequences = 8, kPromptTokens = 256, kSteps = 32;

// Random factors of all matrices of the layers.
Result<std::shared_ptr<const model::LiveAdapter>> adapter_of(const model::Weights& weights, uint64_t seed) {
  Random random(seed);
  const auto number = [&] { return 0.02f * (static_cast<float>(random.below(2001)) / 1000 - 1); };
  model::Adapter adapter{.rank = kRank, .alpha = kRank, .use_rslora = false, .factors = {}};
  for (const auto& [name, matrix] : model::matrices_of(weights.layout())) {
    if (name.find(".layers.") == std::string::npos) continue;
    model::Factors factors{.rows = matrix.rows, .columns = matrix.columns, .a = {}, .b = {}};
    for (int i = 0; i < kRank * matrix.columns; ++i) factors.a.push_back(number());
    for (int i = 0; i < kRank * matrix.rows; ++i) factors.b.push_back(number());
    adapter.factors[name] = std::move(factors);
  }
  auto stream = TRY(kernels::Stream::cpu(1));
  return model::LiveAdapter::create(stream, adapter, weights);
}

// Seconds of a step that samples a token for each of kSequences, which have `adapters` in turn.
Result<double> step_seconds(rollout::Engine& engine, const model::Weights& weights,
                            std::span<const std::shared_ptr<const model::LiveAdapter>> adapters) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < kSequences; ++i) {
    rollout::TurnRequest turn{.max_new_tokens = kSteps + 2, .seed = static_cast<uint64_t>(i)};
    if (!adapters.empty()) turn.adapter = adapters[i % adapters.size()];
    TRY(engine.add(i, random_tokens(i, kPromptTokens, weights.config().vocabulary), turn));
  }
  std::vector<double> seconds;
  while (!engine.idle()) {
    const auto start = Clock::now();
    const size_t sampled = TRY(engine.step()).size();
    if (sampled == kSequences) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  for (int i = 0; i < kSequences; ++i) engine.release(i);
  if (seconds.empty()) return fail(Status::internal("no step sampled for all sequences"));
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

Status add_adapters(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                    std::vector<Figure>& figures) {
  if (settings.device.kind != kernels::Device::Kind::kCpu) return {};  // holds none
  constexpr std::array kCounts = {0, 1, 4, 8};
  std::vector<std::shared_ptr<const model::LiveAdapter>> adapters;
  for (int i = 0; i < kCounts.back(); ++i) adapters.push_back(TRY(adapter_of(*weights, i)));
  auto engine = TRY(rollout::Engine::create(weights, 0, settings.place(),
                                            {.slots = kSequences, .max_tokens = 512, .prefill_tokens = 4096}));
  std::array<std::vector<double>, kCounts.size()> rounds;
  double total = 0;
  while (rounds[0].size() < 3 || total < settings.seconds * kCounts.size()) {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      rounds[i].push_back(TRY(step_seconds(engine, *weights, std::span(adapters).first(kCounts[i]))));
      total += rounds[i].back() * kSteps;
    }
  }
  for (auto& all : rounds) std::ranges::sort(all);
  const auto rate = [&](size_t i) { return kSequences / rounds[i][rounds[i].size() / 2]; };
  for (size_t i = 0; i < kCounts.size(); ++i) {
    figures.push_back(
        {fmt::format("decode {} at {}, {} adapters of rank {}", kSequences, kPromptTokens, kCounts[i], kRank), rate(i),
         "tok/s", rate(0), "without adapters"});
  }
  return {};
}

}  // namespace tandem::bench
