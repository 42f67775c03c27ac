#include "trainer/torch/plugin/rotation.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace tandem::torch_plugin {

namespace {

at::Tensor llama3_frequencies(const TandemTorchRope& rope, const at::Tensor& plain) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const at::Tensor wave_length = 2 * std::numbers::pi / plain;
  const double longest = original / rope.low_frequency_factor, shortest = original / rope.high_frequency_factor;
  const at::Tensor share =
      (original / wave_length - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
  const at::Tensor between = (1 - share) * plain / rope.factor + share * plain;
  const at::Tensor slow = at::where(wave_length > longest, plain / rope.factor, between);
  return at::where(wave_length < shortest, plain, slow);
}

at::Tensor yarn_frequencies(const TandemTorchRope& rope, const at::Tensor& plain) {
  const auto dim = static_cast<double>(rope.dim);
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(static_cast<double>(rope.original_max_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(rope.dim / 2, at::kDouble) - low) / (high - low)).clamp(0, 1);
  return plain / rope.factor * ramp + plain * (1 - ramp);
}

at::Tensor frequencies_of(const TandemTorchRope& rope) {
  const at::Tensor exponents = at::arange(0, rope.dim, 2, at::kDouble) / static_cast<double>(rope.dim);
  const at::Tensor plain = at::pow(rope.theta, -exponents);
  switch (rope.kind) {
    case TANDEM_TORCH_ROPE_DEFAULT:
      return plain;
    case TANDEM_TORCH_ROPE_LINEAR:
      return plain / rope.factor;
    case TANDEM_TORCH_ROPE_LLAMA3:
      return llama3_frequencies(rope, plain);
    case TANDEM_TORCH_ROPE_YARN:
      return yarn_frequencies(rope, plain);
  }
  throw std::runtime_error("RoPE of kind " + std::to_string(rope.kind) + " is not known");
}

double stretch(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double magnitude_of(const TandemTorchRope& rope) {
  if (rope.kind != TANDEM_TORCH_ROPE_YARN) return 1;
  if (rope.attention_factor > 0) return rope.attention_factor;
  if (rope.mscale > 0 && rope.mscale_all_dim > 0)
    return stretch(rope.factor, rope.mscale) / stretch(rope.factor, rope.mscale_all_dim);
  return stretch(rope.factor, 1);
}

}  // namespace

Rotation::Rotation(const TandemTorchRope& rope, int64_t positions)
    : dim_(rope.dim), interleaved_(rope.interleaved != 0) {
  // Frequencies are rounded to float32 before the angle is taken, as transformers has them.
  const at::Tensor frequencies = frequencies_of(rope).to(at::kFloat);
  const at::Tensor angles = at::arange(positions, at::kFloat).unsqueeze(1) * frequencies;
  const double magnitude = magnitude_of(rope);
  cos_ = angles.cos() * magnitude;
  sin_ = angles.sin() * magnitude;
}

at::Tensor Rotation::turn(const at::Tensor& heads) const {
  const at::Tensor turned = heads.narrow(-1, 0, dim_);
  const at::Tensor rest = heads.narrow(-1, dim_, heads.size(-1) - dim_);
  if (interleaved_) {
    const at::Tensor pairs = turned.unflatten(-1, {dim_ / 2, 2});
    const at::Tensor x = pairs.select(-1, 0), y = pairs.select(-1, 1);
    return at::cat({at::stack({x * cos_ - y * sin_, y * cos_ + x * sin_}, -1).flatten(-2), rest}, -1);
  }
  const at::Tensor x = turned.narrow(-1, 0, dim_ / 2), y = turned.narrow(-1, dim_ / 2, dim_ / 2);
  return at::cat({x * cos_ - y * sin_, y * cos_ + x * sin_, rest}, -1);
}

double score_factor(const TandemTorchRope& rope) {
  if (rope.kind != TANDEM_TORCH_ROPE_YARN || rope.mscale_all_dim <= 0) return 1;
  const double factor = stretch(rope.factor, rope.mscale_all_dim);
  return factor * factor;
}

}  // namespace tandem::torch_plugin
