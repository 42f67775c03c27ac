// Log-probabilities of a sequence by the engine's forward pass, and the golden models to try it on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/forward.h"

namespace tandem::model {

constexpr const char* kGoldenModels[] = {"llama",           "llama-llama3",
                                         "llama-linear",    "llama-yarn-mscale",
                                         "llama-heads-16",  "mistral",
                                         "qwen2",           "qwen2-yarn",
                                         "qwen2-window",    "qwen3",
                                         "qwen3-heads-96",  "qwen3-moe",
                                         "qwen3-moe-plain", "glm4",
                                         "glm4-moe",        "glm4-moe-heads-20",
                                         "deepseek-v3",     "deepseek-v3-plain",
                                         "kimi-k2"};

inline fs::path golden_model(const std::string& name) {
  return fs::path(TANDEM_SOURCE_DIR) / "tests/golden/models" / name;
}

// What tests/golden/make_models.py wrote beside the model.
inline Json expected_of(const std::string& name) {
  return *parse_json(*read_file(golden_model(name) / "expected.json"));
}

// The tests' names are those of the models, as far as names may be.
inline std::string model_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The logprobs of each token but the first. The sequence is prefilled in chunks of `chunk`, in a pass with those of
// `neighbours`.
inline std::vector<float> engine_logprobs(kernels::Stream& stream, const Weights& weights,
                                          std::span<const int32_t> tokens, size_t chunk,
                                          std::span<const std::vector<int32_t>> neighbours = {}) {
  const auto& config = weights.config();
  constexpr int kPages = 8;
  auto pool = std::move(*KvPool::create(config, kPages * static_cast<int>(1 + neighbours.size()), weights.format()));
  std::vector<int> pages(pool.pages());
  std::iota(pages.begin(), pages.end(), 0);
  Forward forward(config, config.max_positions, weights.format());
  std::vector<float> logprobs;
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const size_t count = std::min(chunk, tokens.size() - first);
    Batch batch;
    for (size_t n = 0; n < neighbours.size(); ++n) {
      batch.add(neighbours[n], 0, std::span(pages).subspan((1 + n) * kPages, kPages));
    }
    const int row = static_cast<int>(batch.tokens.size());
    batch.add(tokens.subspan(first, count), static_cast<int>(first), std::span(pages).first(kPages));
    const Status ran = forward.run(stream, weights, pool, batch);
    EXPECT_TRUE(ran) << ran.to_string();
    std::vector<kernels::TokenPick> picks;
    for (size_t i = 0; i < count && first + i + 1 < tokens.size(); ++i) {
      picks.push_back({static_cast<int32_t>(i), tokens[first + i + 1]});
    }
    std::vector<float> part(picks.size()), log_sum(count);
    std::vector<int> rows(count);
    std::iota(rows.begin(), rows.end(), row);
    EXPECT_TRUE(forward.head(rows, {.log_sum = log_sum.data()}, picks, part));
    logprobs.insert(logprobs.end(), part.begin(), part.end());
  }
  return logprobs;
}

}  // namespace tandem::model
