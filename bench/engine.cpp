// Benchmarks of the engine.
#include "rollout/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "bench/engine_parts.h"
#include "kernels/attention.h"

namespace tandem::bench {

std::vector<int32_t> random_tokens(uint64_t seed, int count, int vocabulary) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<int32_t>(random.below(vocabulary));
  return tokens;
}

namespace {

using rollout::Engine;
using rollout::TurnRequest;

constexpr int kContext = 256;

Result<Engine> make_engine(const std::shared_ptr<const model::Weights>& weights, const Settings& settings, int slots,
                           int prefill_tokens, bool routes = false) {
  return Engine::create(
      weights, 0, settings.place(),
      {.slots = slots, .max_tokens = 1024, .prefill_tokens = prefill_tokens, .record_routes = routes});
}

// Seconds to take in `count` prompts of 512 tokens, all different.
Result<double> prefill_seconds(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                               int count) {
  auto engine = TRY(make_engine(weights, settings, count, 512));
  uint64_t round = 0;
  return median_seconds(settings.seconds, [&]() -> Status {
    for (int i = 0; i < count; ++i) {
      const uint64_t id = round * 64 + i;
      TRY(engine.add(id, random_tokens(id, 512, weights->config().vocabulary), TurnRequest{.max_new_tokens = 1}));
    }
    while (!engine.idle()) TRY(engine.step());
    for (int i = 0; i < count; ++i) engine.release(round * 64 + i);
    ++round;
    return {};
  });
}

// A measurement of decoding: a step's seconds, and how many of all steps were graphs of a device.
struct Decoding {
  double seconds = 0;
  model::GraphCounters graphs;
  uint64_t steps = 0;
};

enum class Routes : uint8_t { kNone, kRecorded };

// Steps that sample one token for each of `count` sequences of about kContext tokens.
Result<Decoding> decode(const std::shared_ptr<const model::Weights>& weights, const Settings& settings, int count,
                        int group, Routes routes = Routes::kNone) {
  auto engine = TRY(make_engine(weights, settings, count, 4096, routes == Routes::kRecorded));
  for (int i = 0; i < count; ++i) {
    TRY(engine.add(i, random_tokens(i / group, kContext, weights->config().vocabulary),
                   TurnRequest{.max_new_tokens = 700, .seed = static_cast<uint64_t>(i)}));
  }
  const auto sampled = [&] { return engine.counters().sampled_tokens; };
  while (sampled() < static_cast<uint64_t>(count)) TRY(engine.step());
  const double seconds =
      TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(engine.step()), Status{}; }));
  return Decoding{seconds, engine.graphs(), engine.counters().steps};
}

// Tokens of a prompt that are found each second among `count` others, all of 10,000 tokens with the first 9,000 alike.
Result<double> prefix_tokens(const Settings& settings, int count) {
  constexpr int kTokens = 10000, kAlike = 9000;
  rollout::PrefixTree tree(kernels::kPageTokens);
  const std::vector<int> pages(kTokens / kernels::kPageTokens + 1, 0);
  auto tokens = random_tokens(0, kTokens, 50000);
  for (int i = 0; i < count; ++i) {
    std::ranges::copy(random_tokens(1 + i, kTokens - kAlike, 50000), tokens.begin() + kAlike);
    tree.insert(tokens, pages, false, 0);
  }
  size_t found = 0;
  const double seconds = TRY(median_seconds(settings.seconds, [&]() -> Status {
    found = tree.find(tokens, 1).pages.size();
    return {};
  }));
  return static_cast<double>(found * kernels::kPageTokens) / seconds;
}

}  // namespace

Result<std::vector<Figure>> bench_engine(const Settings& settings) {
  auto weights = std::make_shared<const model::Weights>(TRY(load_model(settings, false)));
  const Limits limits = TRY(measure_limits(settings.place()));
  const auto& config = weights->config();
  std::vector<Figure> figures;
  for (const int count : {1, 8}) {
    const double seconds = TRY(prefill_seconds(weights, settings, count));
    figures.push_back({fmt::format("prefill {}x512", count), count * 512 / seconds, "tok/s",
                       limits.flops / body_flops(config), "arithmetic"});
  }
  // Two FLOP a weight, and two bytes, or in the layers little more than one.
  const double coded = model::is_quantised(settings.weights) ? 33.0 / 64 : 1;
  const double step_bytes = body_flops(config) * coded + head_flops(config);
  const auto add_decode = [&](int count, int group, const char* how, Routes routes = Routes::kNone) -> Status {
    const Decoding decoding = TRY(decode(weights, settings, count, group, routes));
    const double by_flops = limits.flops / (body_flops(config) + head_flops(config));
    const double by_bytes = limits.bytes / step_bytes * count;
    const std::string name = fmt::format("decode {} at {}{}", count, kContext, how);
    figures.push_back({name, count / decoding.seconds, "tok/s", std::min(by_flops, by_bytes),
                       by_flops < by_bytes ? "arithmetic" : "memory"});
    if (decoding.graphs.captured > 0) {
      const double share = static_cast<double>(decoding.graphs.launched) / static_cast<double>(decoding.steps);
      figures.push_back({name + ": graphs captured", static_cast<double>(decoding.graphs.captured), "graphs"});
      figures.push_back({name + ": steps by graphs", share * 100, "%"});
    }
    return {};
  };
  for (const int count : {1, 16, 64}) TRY(add_decode(count, 1, ""));
  TRY(add_decode(64, 8, ", groups of 8"));
  if (config.experts.count > 0) TRY(add_decode(64, 1, ", routes recorded", Routes::kRecorded));
  // Two numbers are read for each token.
  for (const int count : {10, 10000}) {
    const double tokens = TRY(prefix_tokens(settings, count));
    figures.push_back({fmt::format("prefix found among {} prompts", count), tokens / 1e6, "Mtok/s",
                       limits.bytes / (2 * sizeof(int32_t)) / 1e6, "memory"});
  }
  // Those of the benchmark are for all matrices, and of a router none can be live.
  if (config.experts.count == 0) TRY(add_adapters(weights, settings, figures));
  TRY(add_speculation(weights, settings, figures));
  return figures;
}

}  // namespace tandem::bench
