#include "trainer/learn/entropy_control.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

void EntropyBonus::add(std::span<const double> logprobs, std::span<const double> weights, double tokens,
                       std::span<double> gradients) const {
  if (coefficient == 0) return;
  for (size_t i = 0; i < logprobs.size(); ++i)
    gradients[i] += coefficient * (logprobs[i] + entropy) * (weights.empty() ? 1 : weights[i]) / tokens;
}

EntropyBonus EntropyControl::bonus(const EntropyTarget& target) const {
  if (!target.any() || !entropy_ || *entropy_ > target.target) return {};
  return {.coefficient = std::min(coefficient_, target.most), .entropy = *entropy_};
}

void EntropyControl::add(double entropy, const EntropyTarget& target) {
  if (!target.any()) *this = {};
  if (!target.any() || entropy == 0) return;
  entropy_ = entropy;
  coefficient_ = std::clamp(coefficient_ + (entropy < target.target ? target.step : -target.step), 0.0, target.most);
}

Json EntropyControl::state() const {
  return entropy_ ? Json({{"coefficient", coefficient_}, {"entropy", *entropy_}}) : Json();
}

Status EntropyControl::restore(const Json& state) {
  *this = {};
  if (state.is_null()) return {};
  const auto wrong = [] { return Status::corrupt("entropy_control is no coefficient and entropy"); };
  if (!state.is_object()) return wrong();
  const Json coefficient = state.value("coefficient", Json()), entropy = state.value("entropy", Json());
  if (!coefficient.is_number() || !entropy.is_number()) return wrong();
  coefficient_ = coefficient.get<double>();
  entropy_ = entropy.get<double>();
  return std::isfinite(coefficient_) && coefficient_ >= 0 && std::isfinite(*entropy_) ? Status() : wrong();
}

}  // namespace tandem::trainer
