// An adapter of random numbers for some matrices of a model, strong enough that it changes what is said.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/random.h"
#include "model/live_adapter.h"

namespace tandem::model {

inline Adapter small_adapter(const ParameterLayout& layout, uint64_t seed, int rank,
                             const std::set<std::string>& modules = {"q_proj", "v_proj", "o_proj", "up_proj",
                                                                     "down_proj"}) {
  Random random(seed);
  const auto number = [&] { return 0.25f * (static_cast<float>(random.below(2001)) / 1000 - 1); };
  Adapter adapter{.rank = rank, .alpha = 2.0 * rank, .use_rslora = false, .factors = {}};
  for (const auto& [name, matrix] : matrices_of(layout)) {
    if (!modules.contains(module_of(name))) continue;
    Factors factors{.rows = matrix.rows, .columns = matrix.columns, .a = {}, .b = {}};
    for (int i = 0; i < rank * matrix.columns; ++i) factors.a.push_back(number());
    for (int i = 0; i < rank * matrix.rows; ++i) factors.b.push_back(number());
    adapter.factors[name] = std::move(factors);
  }
  return adapter;
}

inline std::shared_ptr<const LiveAdapter> small_live_adapter(const Weights& weights, uint64_t seed, int rank = 4) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  auto live = LiveAdapter::create(stream, small_adapter(weights.layout(), seed, rank), weights);
  EXPECT_TRUE(live) << live.error().to_string();
  return live ? *live : nullptr;
}

}  // namespace tandem::model
