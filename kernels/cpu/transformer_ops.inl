// Norms, RoPE, SwiGLU and embedding, forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/simd.h"

namespace tandem::kernels::TANDEM_ISA {

constexpr size_t kRowsPerTask = 16;

// Calls part(index, lanes) over [0, width): whole groups of 16 lanes, then what is left.
template <typename Whole, typename Rest>
TANDEM_INLINE void for_lanes(int width, const Whole& whole, const Rest& rest) {
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) whole(i);
  if (i < width) rest(i, width - i);
}

inline void embed_backward(ThreadPool& threads, const bf16* grad_out, int width, std::span<const int32_t> ids,
                           float* grad_table) {
  // Columns are split, not rows: two rows may be the same token.
  for_pieces(threads, width, 64, [&](size_t begin, size_t end) {
    for (size_t row = 0; row < ids.size(); ++row) {
      float* target = grad_table + static_cast<size_t>(ids[row]) * width;
      const bf16* source = grad_out + row * width;
      for (size_t i = begin; i < end; ++i) target[i] += to_float(source[i]);
    }
  });
}

// Several rows at once, `stride` elements apart: each is one chain of additions, whose latency leaves room for more.
template <int Rows, typename T>
TANDEM_INLINE void inverse_rms(const T* x, size_t stride, int width, float epsilon, float (&inverses)[Rows]) {
  Float squares[Rows] = {};
  for_lanes(
      width,
      [&](int i) {
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
          const Float value = load(x + row * stride + i);
          squares[row] = fma(value, value, squares[row]);
        }
      },
      [&](int i, int lanes) {
        for (int row = 0; row < Rows; ++row) {
          const Float value = load_part(x + row * stride + i, lanes);
          squares[row] = fma(value, value, squares[row]);
        }
      });
  for (int row = 0; row < Rows; ++row)
    inverses[row] = 1.0f / std::sqrt(sum(squares[row]) / static_cast<float>(width) + epsilon);
}
template <typename T>
TANDEM_INLINE float inverse_rms(const T* x, int width, float epsilon) {
  float inverse[1];
  inverse_rms(x, 0, width, epsilon, inverse);
  return inverse[0];
}

// A value as it would be stored as a T.
template <typename T>
TANDEM_INLINE Float as_stored(Float value) {
  if constexpr (sizeof(T) == sizeof(float)) return value;
  return (Float)(widen(round_to_bf16(value)) << 16);
}

template <typename T, typename Store = StoreInCaches>
TANDEM_INLINE void scale_row(const T* source, const T* weight, float factor, int width, T* target,
                             const Store& store_at = {}) {
  const Float inverse = broadcast(factor);
  for_lanes(
      width, [&](int i) { store_at(target + i, as_stored<T>(load(source + i) * inverse) * load(weight + i)); },
      [&](int i, int lanes) {
        store_part(target + i, as_stored<T>(load_part(source + i, lanes) * inverse) * load_part(weight + i, lanes),
                   lanes);
      });
}
template <typename T>
TANDEM_INLINE void norm_row(const T* source, const T* weight, float epsilon, int width, T* target) {
  scale_row(source, weight, inverse_rms(source, width, epsilon), width, target);
}

template <typename T>
void rms_norm(ThreadPool& threads, const T* x, const T* weight, float epsilon, int rows, int width, T* out) {
  constexpr int kTogether = 4;
  choose_store(out, rows, width, [&](const auto& store_at) {
    for_pieces(threads, rows, kRowsPerTask, [&](size_t begin, size_t end) {
      size_t row = begin;
      for (; row + kTogether <= end; row += kTogether) {
        float inverses[kTogether];
        inverse_rms(x + row * width, width, width, epsilon, inverses);
        for (int i = 0; i < kTogether; ++i) {
          const size_t at = (row + i) * width;
          fetch(x + at + size_t{kTogether} * width, width);
          scale_row(x + at, weight, inverses[i], width, out + at, store_at);
        }
      }
      for (; row < end; ++row) {
        const size_t at = row * width;
        scale_row(x + at, weight, inverse_rms(x + at, width, epsilon), width, out + at, store_at);
      }
      store_at.finish();
    });
  });
}

// grad_x = inverse * (w g - x * inverse^2 * mean(w g x)), which may be written over `grad`; what the row gives to the
// weight's gradient is added to `weight_sum`.
TANDEM_INLINE void norm_row_backward(const bf16* x, const bf16* weight, const bf16* grad, float epsilon, int width,
                                     bool accumulate, bf16* target, float* weight_sum) {
  const float inverse = inverse_rms(x, width, epsilon);
  Float dots = {};
  for_lanes(
      width, [&](int i) { dots = fma(load(weight + i) * load(grad + i), load(x + i), dots); },
      [&](int i, int n) { dots = fma(load_part(weight + i, n) * load_part(grad + i, n), load_part(x + i, n), dots); });
  const Float dot = broadcast(sum(dots) / static_cast<float>(width) * inverse * inverse);
  const auto finish = [&](Float value, Float gradient_in, Float weight_in, Float old) {
    return broadcast(inverse) * (weight_in * gradient_in - value * dot) + old;
  };
  for_lanes(
      width,
      [&](int i) {
        const Float value = load(x + i), incoming = load(grad + i);
        store(target + i, finish(value, incoming, load(weight + i), accumulate ? load(target + i) : Float{}));
        store(weight_sum + i, fma(incoming, value * broadcast(inverse), load(weight_sum + i)));
      },
      [&](int i, int n) {
        const Float value = load_part(x + i, n), incoming = load_part(grad + i, n);
        store_part(target + i,
                   finish(value, incoming, load_part(weight + i, n), accumulate ? load_part(target + i, n) : Float{}),
                   n);
        store_part(weight_sum + i, fma(incoming, value * broadcast(inverse), load_part(weight_sum + i, n)), n);
      });
}

// Gradients of weights, arrays of `width`: one partial sum of each per piece of rows, joined in the order of the
// pieces, whose size does not depend on the number of threads. of_row(row, the sums of its piece, one array behind the
// other).
template <typename OfRow>
void sum_over_rows(ThreadPool& threads, size_t rows, int width, std::initializer_list<float*> grads,
                   const OfRow& of_row) {
  constexpr size_t kPiece = 64;
  const size_t pieces = (rows + kPiece - 1) / kPiece, sums = grads.size() * width;
  std::vector<float> partial(pieces * sums, 0);
  for_pieces(threads, rows, kPiece, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) of_row(row, partial.data() + begin / kPiece * sums);
  });
  for (size_t piece = 0; piece < pieces; ++piece) {
    const float* sum = partial.data() + piece * sums;
    for (float* grad : grads) {
      for (int i = 0; i < width; ++i) grad[i] += *sum++;
    }
  }
}

inline void rms_norm_backward(ThreadPool& threads, const RmsNormBackward& g) {
  const int width = g.width;
  sum_over_rows(threads, g.rows, width, {g.grad_weight}, [&](size_t row, float* weight_sum) {
    norm_row_backward(g.x + row * width, g.weight, g.grad_out + row * width, g.epsilon, width, g.accumulate,
                      g.grad_x + row * width, weight_sum);
  });
}

template <typename T>
void head_norm(ThreadPool& threads, const BasicHeadNorm<T>& g) {
  for_pieces(threads, g.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      for (int head = 0; head < g.heads; ++head) {
        T* x = g.x + row * g.stride + static_cast<size_t>(head) * g.head_size;
        norm_row(x, g.weight, g.epsilon, g.head_size, x);
      }
    }
  });
}

inline void head_norm_backward(ThreadPool& threads, const HeadNormBackward& g) {
  sum_over_rows(threads, g.rows, g.head_size, {g.grad_weight}, [&](size_t row, float* weight_sum) {
    for (int head = 0; head < g.heads; ++head) {
      const size_t at = row * g.stride + static_cast<size_t>(head) * g.head_size;
      norm_row_backward(g.x + at, g.weight, g.grad + at, g.epsilon, g.head_size, false, g.grad + at, weight_sum);
    }
  });
}

inline void sum_rows(ThreadPool& threads, const SumRows& g) {
  sum_over_rows(threads, g.rows, g.width, {g.out}, [&](size_t row, float* sums) {
    const bf16* x = g.x + row * g.stride;
    for_lanes(
        g.width, [&](int i) { store(sums + i, load(sums + i) + load(x + i)); },
        [&](int i, int n) { store_part(sums + i, load_part(sums + i, n) + load_part(x + i, n), n); });
  });
}

TANDEM_INLINE float element(bf16 value) { return to_float(value); }
TANDEM_INLINE float element(float value) { return value; }
TANDEM_INLINE void set_element(bf16& target, float value) { target = to_bf16(value); }
TANDEM_INLINE void set_element(float& target, float value) { target = value; }

// Pairs half of what is rotated apart.
template <typename T>
void turn_halves(const BasicRope<T>& r, T* head, const float* turn) {
  const int half = r.rope_dim / 2;
  T* second = head + half;
  for (int i = 0; i < half; ++i) {
    const float cosine = turn[i * 2], sine = r.inverse ? -turn[i * 2 + 1] : turn[i * 2 + 1];
    const float a = element(head[i]), b = element(second[i]);
    set_element(head[i], a * cosine - b * sine);
    set_element(second[i], b * cosine + a * sine);
  }
}

// Pairs side by side. First and second elements are computed apart: of both in one loop GCC 12 makes vfmaddsub on
// AVX-512, whatever -ffp-contract says, which rounds once less.
template <typename T>
void turn_pairs(const BasicRope<T>& r, T* head, const float* turn) {
  constexpr int kPairs = 32;
  float first[kPairs], second[kPairs];
  for (int begin = 0; begin < r.rope_dim / 2; begin += kPairs, head += 2 * kPairs, turn += 2 * kPairs) {
    const int pairs = std::min(kPairs, r.rope_dim / 2 - begin);
    const float sign = r.inverse ? -1.0f : 1.0f;
    for (int i = 0; i < pairs; ++i)
      first[i] = element(head[i * 2]) * turn[i * 2] - element(head[i * 2 + 1]) * (sign * turn[i * 2 + 1]);
    for (int i = 0; i < pairs; ++i)
      second[i] = element(head[i * 2 + 1]) * turn[i * 2] + element(head[i * 2]) * (sign * turn[i * 2 + 1]);
    for (int i = 0; i < pairs; ++i) {
      set_element(head[i * 2], first[i]);
      set_element(head[i * 2 + 1], second[i]);
    }
  }
}

template <typename T>
void rope(ThreadPool& threads, const BasicRope<T>& r) {
  for_pieces(threads, r.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const float* turn = r.table + static_cast<size_t>(r.positions[row]) * r.rope_dim;
      for (int head = 0; head < r.heads; ++head) {
        T* start = r.x + row * r.stride + static_cast<size_t>(head) * r.head_size;
        if (r.interleaved)
          turn_pairs(r, start, turn);
        else
          turn_halves(r, start, turn);
      }
    }
  });
}

template <typename T>
void add(ThreadPool& threads, const T* y, size_t count, T* x) {
  for_pieces(threads, count, 1 << 14, [&](size_t begin, size_t end) {
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(x + i, load(x + i) + load(y + i));
    if (i < end) {
      const int lanes = static_cast<int>(end - i);
      store_part(x + i, load_part(x + i, lanes) + load_part(y + i, lanes), lanes);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
