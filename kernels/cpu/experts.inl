// Routing, the way to the experts and back, forward and backward. A row is one task's, its experts are taken in order
// of rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/gates.inl"
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

inline void sigmoids(const float* logits, int experts, float* out) {
  for_lanes(
      experts, [&](int i) { store(out + i, sigmoid(load(logits + i))); },
      [&](int i, int lanes) { store_part(out + i, sigmoid(load_part(logits + i, lanes)), lanes); });
}

// What the sum of sigmoids is at least taken for, as the models that have them were trained.
constexpr float kLeastSum = 1e-20f;

// Makes NaN of the keys of all groups but those whose two largest have the largest sums.
inline void leave_groups(const Route& r, float* keys, std::vector<float>& sums) {
  const int size = r.experts / r.groups;
  for (int group = 0; group < r.groups; ++group) {
    float first = -INFINITY, second = -INFINITY;
    for (const float* key = keys + group * size; key < keys + (group + 1) * size; ++key) {
      second = std::max(second, std::min(first, *key));
      first = std::max(first, *key);
    }
    const float sum = first + second;
    sums[group] = std::isnan(sum) ? -INFINITY : sum;
  }
  for (int rank = 0; rank < r.top_k_groups; ++rank) {
    int best = -1;
    for (int group = 0; group < r.groups; ++group) {
      if (best < 0 ? !std::isnan(sums[group]) : sums[group] > sums[best]) best = group;
    }
    sums[best] = NAN;
  }
  for (int group = 0; group < r.groups; ++group) {
    if (!std::isnan(sums[group])) std::fill_n(keys + group * size, size, NAN);
  }
}

// Whether two choices are the same experts, in whatever order.
inline bool are_same_experts(const int32_t* a, const int32_t* b, int top_k) {
  return std::all_of(a, a + top_k, [&](int32_t id) { return std::find(b, b + top_k, id) != b + top_k; });
}

inline void route(ThreadPool& threads, const Route& r) {
  for_pieces(threads, r.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    std::vector<float> terms(r.experts), left(r.experts), group_sums(r.groups);
    for (size_t row = begin; row < end; ++row) {
      const float* logits = r.logits + row * r.experts;
      int32_t* ids = r.ids + row * r.top_k;
      float* weights = r.weights + row * r.top_k;
      float total = 1;
      if (r.score == Score::kSigmoid)
        sigmoids(logits, r.experts, terms.data());
      else
        total = softmax_terms(logits, r.experts, terms.data());
      // What is taken becomes NaN, which no comparison prefers; a NaN that came in is the least that can be taken.
      for (int i = 0; i < r.experts; ++i) {
        const float key = r.score == Score::kSoftmax ? logits[i] : r.bias != nullptr ? terms[i] + r.bias[i] : terms[i];
        left[i] = std::isnan(key) ? -INFINITY : key;
      }
      if (r.top_k_groups < r.groups) leave_groups(r, left.data(), group_sums);
      for (int rank = 0; rank < r.top_k; ++rank) {
        int best = -1;
        for (int i = 0; i < r.experts; ++i) {
          if (best < 0 ? !std::isnan(left[i]) : left[i] > left[best]) best = i;
        }
        left[best] = NAN;
        ids[rank] = best;
      }
      if (r.given != nullptr) {
        const int32_t* given = r.given + row * r.top_k;
        const bool takes = given[0] >= 0;
        if (r.changed != nullptr) r.changed[row] = takes && !are_same_experts(given, ids, r.top_k);
        if (takes) std::copy_n(given, r.top_k, ids);
      }
      float top_k_sum = 0;
      for (int rank = 0; rank < r.top_k; ++rank) {
        weights[rank] = terms[ids[rank]] / total;
        top_k_sum += weights[rank];
      }
      if (r.score == Score::kSigmoid) top_k_sum += kLeastSum;
      for (int rank = 0; rank < r.top_k; ++rank) {
        if (r.normalise) weights[rank] /= top_k_sum;
        weights[rank] *= r.scale;
      }
    }
  });
}

// Through sigmoids: w = scale * s / S of the chosen, or scale * s; dlogit = ds * s (1 - s).
inline void sigmoid_route_backward(const RouteBackward& r, const float* terms, const int32_t* ids, const float* grads,
                                   float mean, bf16* target) {
  float sum = kLeastSum;
  for (int rank = 0; rank < r.top_k; ++rank) sum += terms[ids[rank]];
  for (int rank = 0; rank < r.top_k; ++rank) {
    const float s = terms[ids[rank]], gradient = r.scale * grads[rank];
    target[ids[rank]] = to_bf16((r.normalise ? (gradient - mean) / sum : gradient) * s * (1 - s));
  }
}

inline void route_backward(ThreadPool& threads, const RouteBackward& r) {
  for_pieces(threads, r.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    std::vector<float> terms(r.experts);
    for (size_t row = begin; row < end; ++row) {
      const float* logits = r.logits + row * r.experts;
      const int32_t* ids = r.ids + row * r.top_k;
      const float* weights = r.weights + row * r.top_k;
      const float* grads = r.grad_weights + row * r.top_k;
      bf16* target = r.grad_logits + row * r.grad_stride;
      float mean = 0;
      for (int rank = 0; rank < r.top_k; ++rank) mean = std::fma(weights[rank], grads[rank], mean);
      std::fill_n(target, r.grad_stride, bf16{});
      if (r.score == Score::kSigmoid) {
        sigmoids(logits, r.experts, terms.data());
        sigmoid_route_backward(r, terms.data(), ids, grads, mean, target);
        continue;
      }
      // The scale stands before both terms: in the weights, and by it in their mean.
      if (!r.normalise) {
        const float total = softmax_terms(logits, r.experts, terms.data());
        for (int i = 0; i < r.experts; ++i) target[i] = to_bf16(-(terms[i] / total) * mean);
      }
      const float share = mean / r.scale;
      for (int rank = 0; rank < r.top_k; ++rank) target[ids[rank]] = to_bf16(weights[rank] * (grads[rank] - share));
    }
  });
}

template <typename T>
void permute(ThreadPool& threads, const BasicPermute<T>& p) {
  const size_t width = p.width;
  for_pieces(threads, p.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t pair = begin * p.top_k; pair < end * p.top_k; ++pair) {
      std::memcpy(p.out + p.places[pair] * width, p.x + pair / p.top_k * width, width * sizeof(T));
    }
  });
}

inline void permute_backward(ThreadPool& threads, const PermuteBackward& p) {
  const size_t width = p.width;
  for_pieces(threads, p.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const int32_t* places = p.places + row * p.top_k;
      const auto source = [&](int rank, int i) { return p.grad_out + places[rank] * width + i; };
      bf16* target = p.grad_x + row * width;
      for_lanes(
          p.width,
          [&](int i) {
            Float total = {};
            for (int rank = 0; rank < p.top_k; ++rank) total = total + load(source(rank, i));
            store(target + i, total);
          },
          [&](int i, int lanes) {
            Float total = {};
            for (int rank = 0; rank < p.top_k; ++rank) total = total + load_part(source(rank, i), lanes);
            store_part(target + i, total, lanes);
          });
    }
  });
}

template <typename T>
void combine(ThreadPool& threads, const BasicCombine<T>& c) {
  const size_t width = c.width;
  for_pieces(threads, c.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const int32_t* places = c.places + row * c.top_k;
      const float* weights = c.weights + row * c.top_k;
      const auto source = [&](int rank, int i) { return c.y + places[rank] * width + i; };
      const T* residual = c.residual + row * width;
      T* target = c.out + row * width;
      for_lanes(
          c.width,
          [&](int i) {
            Float total = {};
            for (int rank = 0; rank < c.top_k; ++rank) {
              total = fma(broadcast(weights[rank]), load(source(rank, i)), total);
            }
            store(target + i, load(residual + i) + total);
          },
          [&](int i, int lanes) {
            Float total = {};
            for (int rank = 0; rank < c.top_k; ++rank) {
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
    for (size_t pair = begin * c.top_k; pair < end * c.top_k; ++pair) {
      const bf16* grad = c.grad_out + pair / c.top_k * width;
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
            const Float gradient = load_part(grad + i, lanes);
            dots = fma(gradient, load_part(y + i, lanes), dots);
            store_part(target + i, weight * gradient, lanes);
          });
      c.grad_weights[pair] = sum(dots);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
