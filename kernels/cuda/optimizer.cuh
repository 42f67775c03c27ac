// AdamW, one thread an element, and the norm of gradients: formulas and orders of kernels/optimizer.h.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

struct AdamwElement {
  TandemCudaAdamw a;
  float step_size, inverse2, keep;
  TANDEM_HD void operator()(int64_t i) const {
    const float grad = a.grad[i] * a.grad_scale;
    const float first = fmaf(a.beta1, a.first_moment[i], (1 - a.beta1) * grad);
    const float second = fmaf(a.beta2, a.second_moment[i], (1 - a.beta2) * grad * grad);
    const float change = step_size * first / (sqrtf(second * inverse2) + a.epsilon);
    const float master = fmaf(a.master[i], keep, -change);
    a.first_moment[i] = first;
    a.second_moment[i] = second;
    a.master[i] = master;
    a.weight[i] = to_bf16_bits(master);
  }
};
template <typename Execution>
int operate(Execution& execution, const TandemCudaAdamw& a) {
  if (!a.grad || !a.master || !a.first_moment || !a.second_moment || !a.weight) return kTandemCudaNull;
  if (a.count < 0 || a.step < 1) return kTandemCudaSize;
  const double step = static_cast<double>(a.step);
  const double correction1 = 1 - std::pow(static_cast<double>(a.beta1), step);
  const double correction2 = 1 - std::pow(static_cast<double>(a.beta2), step);
  return each_element(execution, a.count,
                      AdamwElement{a, static_cast<float>(a.learning_rate / correction1),
                                   static_cast<float>(1 / correction2), 1 - a.learning_rate * a.weight_decay});
}

constexpr int64_t kSquaresPiece = 1 << 16;

// One thread a lane of a piece; then the first of its sixteen adds them up.
struct SquaresOfPieces {
  static constexpr int kThreads = 128;
  static constexpr int kPieces = kThreads / kLanes;
  struct Shared {
    double lanes[kThreads];
  };
  using Private = Nothing;
  TandemCudaSumOfSquares s;
  double* parts;

  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private&) const {
    const int64_t piece = block * kPieces + thread / kLanes;
    const int64_t begin = piece * kSquaresPiece;
    const int64_t end = begin + kSquaresPiece < s.count ? begin + kSquaresPiece : s.count;
    if (phase == 0) {
      double sum = 0;
      for (int64_t i = begin + thread % kLanes; i < end; i += kLanes) {
        sum = sum + static_cast<double>(s.values[i]) * s.values[i];
      }
      shared.lanes[thread] = sum;
      return true;
    }
    if (thread % kLanes == 0 && begin < s.count) {
      double total = 0;
      for (int lane = 0; lane < kLanes; ++lane) total = total + shared.lanes[thread + lane];
      parts[piece] = total;
    }
    return false;
  }
};
struct SquaresJoined {
  TandemCudaSumOfSquares s;
  const double* parts;
  TANDEM_HD void operator()(int64_t) const {
    double total = 0;
    for (int64_t piece = 0; piece < pieces(s.count, kSquaresPiece); ++piece) total = total + parts[piece];
    *s.result = total;
  }
};
inline size_t sum_of_squares_workspace(int64_t count) {
  return static_cast<size_t>(pieces(count, kSquaresPiece)) * sizeof(double);
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaSumOfSquares& s) {
  if (!s.values || !s.result || !s.workspace) return kTandemCudaNull;
  if (s.count < 0) return kTandemCudaSize;
  if (s.workspace_bytes < sum_of_squares_workspace(s.count)) return kTandemCudaWorkspace;
  double* parts = static_cast<double*>(s.workspace);
  return in_order(
      [&] {
        return start(execution, SquaresOfPieces{s, parts},
                     pieces(pieces(s.count, kSquaresPiece), SquaresOfPieces::kPieces));
      },
      [&] {
        return each_element(execution, 1, SquaresJoined{s, parts});
      });
}

}  // namespace tandem::kernels::cuda
