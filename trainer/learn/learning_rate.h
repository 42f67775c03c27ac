// The learning rate of each step: a rise, and then a fall or none.
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
  int warmup_steps = 0;  // rises linearly over them; the peak is reached at the last of them
  Decay decay = Decay::kConstant;
  int64_t steps = 0;         // at the last of which a fall has ended; later ones stay there
  double final_share = 0.1;  // of the peak, where a fall ends

  // `step` counts from 1.
  double at(int64_t step) const;
};

}  // namespace tandem::trainer
