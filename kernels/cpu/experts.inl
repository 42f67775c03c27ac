// Routing, the way to the experts and back, forward and backward. A row is one task's, its experts are taken in order
// of rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/transformer_ops.inl"
#include "kernels/experts.h"

namespace tandem::kernels::TANDEM_ISA {

// The row's probabilities before their division: e^(logit - the largest) into `terms`; gives their sum.
inline float softmax_terms(const float* logits, int experts, float* terms) {
  float peak = logits[0];
  for (int i = 1; i < experts; ++i) peak = std::max(peak, logits[i]);
  const Float shift = broadcast(peak);
  Float total = {};
  for_lanes(
      experts,
      [&](int i) {
        const Float term = exponential(load(logits + i) - shift);
        total = total + term;
        store(terms + i, term);
      },
      [&](int i, int lanes) {
        const Float term = exponential(load_part(logits + i, lanes, -INFINITY) - shift);
        total = total + term;
        store_part(terms + i, term, lanes);
      });
  return sum(total);
}

inline void route(ThreadPool& threads, const Route& r) {
  for_pieces(threads, r.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    std::vector<float> terms(r.experts), left(r.experts);
    for (size_t row = begin; row < end; ++row) {
      const float* logits = r.logits + row * r.experts;
      int32_t* ids = r.ids + row * r.chosen;
      float* weights = r.weights + row * r.chosen;
      const float total = softmax_terms(logits, r.experts, terms.data());
      // What is taken becomes NaN, which no comparison prefers; a NaN that came in is the least that can be taken.
      for (int i = 0; i < r.experts; ++i) left[i] = std::isnan(logits[i]) ? -INFINITY : logits[i];
      float chosen_sum = 0;
      for (int rank = 0; rank < r.chosen; ++rank) {
        int best = -1;
        for (int i = 0; i < r.experts; ++i) {
          if (best < 0 ? !std::isnan(left[i]) : left[i] > left[best]) best = i;
        }
        left[best] = NAN;
        ids[rank] = best;
        weights[rank] = terms[best] / total;
        chosen_sum += weights[rank];
      }
      if (!r.normalise) continue;
      for (int rank = 0; rank < r.chosen; ++rank) weights[rank] /= chosen_sum;
    }
  });
}

inline void route_backward(ThreadPool& threads, const RouteBackward& r) {
  for_pieces(threads, r.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    std::vector<float> terms(r.experts);
    for (size_t row = begin; row < end; ++row) {
      const int32_t* ids = r.ids + row * r.chosen;
      const float* weights = r.weights + row * r.chosen;
      const float* grads = r.grad_weights + row * r.chosen;
      bf16* target = r.grad_logits + row * r.grad_stride;
      float mean = 0;
      for (int rank = 0; rank < r.chosen; ++rank) mean = std::fma(weights[rank], grads[rank], mean);
      std::fill_n(target, r.grad_stride, bf16{});
      if (!r.normalise) {
        const float total = softmax_terms(r.logits + row * r.experts, r.experts, terms.data());
        for (int i = 0; i < r.experts; ++i) target[i] = to_bf16(-(terms[i] / total) * mean);
      }
      for (int rank = 0; rank < r.chosen; ++rank) target[ids[rank]] = to_bf16(weights[rank] * (grads[rank] - mean));
    }
  });
}

inline void permute(ThreadPool& threads, const Permute& p) {
  const size_t width = p.width;
  for_pieces(threads, p.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t pair = begin * p.chosen; pair < end * p.chosen; ++pair) {
      std::memcpy(p.out + p.places[pair] * width, p.x + pair / p.chosen * width, width * sizeof(bf16));
    }
  });
}

inline void permute_backward(ThreadPool& threads, const PermuteBackward& p) {
  const size_t width = p.width;
  for_pieces(threads, p.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const int32_t* places = p.places + row * p.chosen;
      const auto source = [&](int rank, int i) { return p.grad_out + places[rank] * width + i; };
      bf16* target = p.grad_x + row * width;
      for_lanes(
          p.width,
          [&](int i) {
            Float total = {};
            for (int rank = 0; rank < p.chosen; ++rank) total = total + load(source(rank, i));
            store(target + i, total);
          },
          [&](int i, int lanes) {
            Float total = {};
            for (int rank = 0; rank < p.chosen; ++rank) total = total + load_part(source(rank, i), lanes);
            store_part(target + i, total, lanes);
          });
    }
  });
}

inline void combine(ThreadPool& threads, const Combine& c) {
  const size_t width = c.width;
  for_pieces(threads, c.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const int32_t* places = c.places + row * c.chosen;
      const float* weights = c.weights + row * c.chosen;
      const auto source = [&](int rank, int i) { return c.y + places[rank] * width + i; };
      const bf16* residual = c.residual + row * width;
      bf16* target = c.out + row * width;
      for_lanes(
          c.width,
          [&](int i) {
            Float total = {};
            for (int rank = 0; rank < c.chosen; ++rank) {
              total = fma(broadcast(weights[rank]), load(source(rank, i)), total);
            }
            store(target + i, load(residual + i) + total);
          },
          [&](int i, int lanes) {
            Float total = {};
            for (int rank = 0; rank < c.chosen; ++rank) {
              total = fma(broadcast(weights[rank]), load_part(source(rank, i), lanes), total);
            }
            store_part(target + i, load_part(residual + i, lanes) + total, lanes);
          });
    }
  });
}

inline void combine_backward(ThreadPool& threads, const CombineBackward& c) {
  const size_t width = c.width;
  for_pieces(threads, c.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t pair = begin * c.chosen; pair < end * c.chosen; ++pair) {
      const bf16* grad = c.grad_out + pair / c.chosen * width;
      const bf16* y = c.y + c.places[pair] * width;
      bf16* target = c.grad_y + c.places[pair] * width;
      const Float weight = broadcast(c.weights[pair]);
      Float dots = {};
      for_lanes(
          c.width,
          [&](int i) {
            dots = fma(load(grad + i), load(y + i), dots);
            store(target + i, weight * load(grad + i));
          },
          [&](int i, int lanes) {
            const Float slope = load_part(grad + i, lanes);
            dots = fma(slope, load_part(y + i, lanes), dots);
            store_part(target + i, weight * slope, lanes);
          });
      c.grad_weights[pair] = sum(dots);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
