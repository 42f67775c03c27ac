// The learning rate by step: linear warm-up, then constant, linear or cosine decay.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tandem::trainer {

enum class Decay : uint8_t { kConstant, kLinear, kCosine };
inline constexpr std::string_view kDecayNames[] = {"constant", "linear", "cosine"};
Result<Decay> decay_named(std::string_view name);

struct LearningRate {
  double peak = 3e-5;
  int warmup_steps = 0;  // linear; the last of them has the peak
  Decay decay = Decay::kConstant;
  int64_t steps = 0;         // the decay ends at this step; later steps keep its rate
  double final_share = 0.1;  // of the peak, at the end of the decay

  // `step` counts from 1.
  double at(int64_t step) const;
};

}  // namespace tandem::trainer
