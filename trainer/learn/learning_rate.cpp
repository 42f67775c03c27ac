#include "trainer/learn/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace tandem::trainer {

Result<Decay> decay_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kDecayNames); ++i) {
    if (kDecayNames[i] == name) return static_cast<Decay>(i);
  }
  return fail(Status::invalid(fmt::format("schedule \"{}\" is not known{}", name, did_you_mean(name, kDecayNames))));
}

double LearningRate::at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step) / warmup_steps;
  if (decay == Decay::kConstant) return peak;
  const auto length = static_cast<double>(std::max<int64_t>(1, steps - warmup_steps));
  const double done = std::clamp(static_cast<double>(step - warmup_steps) / length, 0.0, 1.0);
  const double left = decay == Decay::kLinear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return peak * (final_share + (1 - final_share) * left);
}

}  // namespace tandem::trainer
