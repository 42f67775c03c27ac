// AdamW, one thread an element, and the norm of gradients: formulas and orders of kernels/optimizer.h.
#pragma once

#include "kernels/cuda/quantize.cuh"

namespace tandem::kernels::cuda {

struct AdamwElement {
  TandemCudaAdamw a;
  float step_size, inverse2, keep;
  TANDEM_HD void operator()(int64_t i) const {
    if (a.first_moment) {
      update(i, a.first_moment[i], a.second_moment[i]);
    } else {
      update(i, a.first_moment_bf16[i], a.second_moment_bf16[i]);
    }
  }

 private:
  template <typename Moment>
  TANDEM_HD void update(int64_t i, Moment& first_moment, Moment& second_moment) const {
    const float grad = a.grad[i] * a.grad_scale;
    const float first = fmaf(a.beta1, value_of(first_moment), (1 - a.beta1) * grad);
    const float second = fmaf(a.beta2, value_of(second_moment), (1 - a.beta2) * grad * grad);
    const float change = step_size * first / (sqrtf(second * inverse2) + a.epsilon);
    const float master = fmaf(a.master[i], keep, -change);
    first_moment = stored<Moment>(first);
    second_moment = stored<Moment>(second);
    a.master[i] = master;
    a.weight[i] = to_bf16_bits(master);
  }
};
// Above it a step takes less than half of a bf16's last place off, and a second moment would never fall again.
constexpr float kMostBeta2OfBf16 = 0.996f;
inline int check(const TandemCudaAdamw& a) {
  if (!a.grad || !a.master || !a.weight) return kTandemCudaNull;
  const bool fp32 = a.first_moment && a.second_moment, bf16 = a.first_moment_bf16 && a.second_moment_bf16;
  if (!fp32 && !bf16) return kTandemCudaNull;
  if ((a.first_moment || a.second_moment) && (a.first_moment_bf16 || a.second_moment_bf16)) return kTandemCudaShape;
  if (a.count < 0 || a.step < 1) return kTandemCudaSize;
  if (bf16 && a.beta2 > kMostBeta2OfBf16) return kTandemCudaShape;
  if ((a.codes != nullptr) != (a.scales != nullptr)) return kTandemCudaNull;
  if (!a.codes) return kTandemCudaOk;
  if (a.columns < 1 || a.count % a.columns != 0) return kTandemCudaShape;
  return a.count / a.columns > INT32_MAX ? kTandemCudaSize : kTandemCudaOk;
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaAdamw& a) {
  if (const int code = check(a)) return code;
  const double step = static_cast<double>(a.step);
  const double correction1 = 1 - std::pow(static_cast<double>(a.beta1), step);
  const double correction2 = 1 - std::pow(static_cast<double>(a.beta2), step);
  const AdamwElement element{a, static_cast<float>(a.learning_rate / correction1), static_cast<float>(1 / correction2),
                             1 - a.learning_rate * a.weight_decay};
  return in_order([&] { return each_element(execution, a.count, element); },
                  [&] {
                    if (!a.codes) return static_cast<int>(kTandemCudaOk);
                    const int rows = static_cast<int>(a.count / a.columns);
                    return operate(execution, TandemCudaQuantizeWeight{a.weight, a.codes, a.scales, rows, a.columns});
                  });
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
