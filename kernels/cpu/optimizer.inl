// AdamW and the norm of gradients.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/quantize.inl"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA {

constexpr size_t kOptimizerPiece = kSquaresPiece;

template <typename Moment>
void adamw(ThreadPool& threads, const BasicAdamW<Moment>& a) {
  const double correction1 = 1 - std::pow(static_cast<double>(a.beta1), static_cast<double>(a.step));
  const double correction2 = 1 - std::pow(static_cast<double>(a.beta2), static_cast<double>(a.step));
  const Float step_size = broadcast(static_cast<float>(a.learning_rate / correction1));
  const Float inverse2 = broadcast(static_cast<float>(1 / correction2));
  const Float keep = broadcast(1 - a.learning_rate * a.weight_decay);
  const Float scale = broadcast(a.grad_scale), epsilon = broadcast(a.epsilon);
  const Float beta1 = broadcast(a.beta1), beta2 = broadcast(a.beta2);
  const Float rest1 = broadcast(1 - a.beta1), rest2 = broadcast(1 - a.beta2);
  const auto update = [&](size_t i, auto read, auto write) {
    const Float grad = read(a.grad + i) * scale;
    const Float first = fma(beta1, read(a.first_moment + i), rest1 * grad);
    const Float second = fma(beta2, read(a.second_moment + i), rest2 * grad * grad);
    const Float master =
        fma(read(a.master + i), keep, -(step_size * first / (square_root(second * inverse2) + epsilon)));
    write(a.first_moment + i, first);
    write(a.second_moment + i, second);
    write(a.master + i, master);
    write(a.weight + i, master);
  };
  const auto step = [&](size_t begin, size_t end) {
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      update(
          i, [](const auto* source) { return load(source); }, [](auto* target, Float value) { store(target, value); });
    }
    if (i < end) {
      const int lanes = static_cast<int>(end - i);
      update(
          i, [&](const auto* source) { return load_part(source, lanes); },
          [&](auto* target, Float value) { store_part(target, value, lanes); });
    }
  };
  if (!a.codes) return for_pieces(threads, a.count, kOptimizerPiece, step);
  // Rows of blocks, whose weights are in the cache when they are quantised.
  const int rows = static_cast<int>(a.count / a.columns);
  for_pieces(threads, rows, kScaleBlock, [&](size_t begin, size_t end) {
    step(begin * a.columns, end * a.columns);
    for (int left = 0; left < a.columns; left += kScaleBlock)
      quantize_weight_block(a.weight, rows, a.columns, a.codes, a.scales, static_cast<int>(begin), left);
  });
}

inline void sums_of_squares(ThreadPool& threads, const float* values, size_t count, double* sums) {
  for_pieces(threads, count, kOptimizerPiece, [&](size_t begin, size_t end) {
    double lanes[kLanes] = {};
    for (size_t i = begin; i < end; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * values[i];
    double total = 0;
    for (const double lane : lanes) total += lane;
    sums[begin / kOptimizerPiece] = total;
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
