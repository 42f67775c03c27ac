// Norms about the mean, GELU, their gradients, and attention in both directions over keys and values that are laid out
// as panels, one head of one sequence a task: they are read again for every few query rows, so laying them out costs
// little.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention.inl"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

// The mean of a row, and 1 / sqrt(the mean of the squares about it + epsilon).
struct RowMoments {
  float mean, inverse;
};
TANDEM_INLINE RowMoments moments_of(const float* x, int width, float epsilon) {
  const auto count = static_cast<float>(width);
  Float total = {}, squares = {};
  for_lanes(
      width, [&](int i) { total = total + load(x + i); }, [&](int i, int n) { total = total + load_part(x + i, n); });
  const float mean = sum(total) / count;
  const auto add_square = [&](Float value) {
    const Float distance = value - broadcast(mean);
    squares = fma(distance, distance, squares);
  };
  for_lanes(
      width, [&](int i) { add_square(load(x + i)); }, [&](int i, int n) { add_square(load_part(x + i, n, mean)); });
  return {mean, 1.0f / std::sqrt(sum(squares) / count + epsilon)};
}

TANDEM_INLINE void layer_norm_row(const LayerNorm& g, const float* x, float* target) {
  const RowMoments row = moments_of(x, g.width, g.epsilon);
  const auto normed = [&](Float value, Float weight, Float bias) {
    return fma((value - broadcast(row.mean)) * broadcast(row.inverse), weight, bias);
  };
  for_lanes(
      g.width, [&](int i) { store(target + i, normed(load(x + i), load(g.weight + i), load(g.bias + i))); },
      [&](int i, int n) {
        store_part(target + i, normed(load_part(x + i, n), load_part(g.weight + i, n), load_part(g.bias + i, n)), n);
      });
}

inline void layer_norm(ThreadPool& threads, const LayerNorm& g) {
  for_pieces(threads, g.rows, kRowsPerTask, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) layer_norm_row(g, g.x + row * g.width, g.out + row * g.width);
  });
}

// What the row gives to the gradients of weight and bias is added to `sums`, weight first.
TANDEM_INLINE void layer_norm_row_backward(const LayerNormBackward& g, size_t row, float* sums) {
  const float *x = g.x + row * g.width, *grad = g.grad_out + row * g.width;
  float* target = g.grad_x + row * g.width;
  const RowMoments moments = moments_of(x, g.width, g.epsilon);
  const auto normed = [&](Float value) { return (value - broadcast(moments.mean)) * broadcast(moments.inverse); };
  Float gradients = {}, dots = {};
  const auto gather = [&](Float value, Float incoming, Float weight) {
    const Float gradient = incoming * weight;
    gradients = gradients + gradient;
    dots = fma(gradient, normed(value), dots);
  };
  for_lanes(
      g.width, [&](int i) { gather(load(x + i), load(grad + i), load(g.weight + i)); },
      [&](int i, int n) { gather(load_part(x + i, n), load_part(grad + i, n), load_part(g.weight + i, n)); });
  const auto width = static_cast<float>(g.width);
  const Float mean_gradient = broadcast(sum(gradients) / width), mean_dot = broadcast(sum(dots) / width);
  const auto finish = [&](Float value, Float gradient) {
    return broadcast(moments.inverse) * (gradient - mean_gradient - normed(value) * mean_dot);
  };
  for_lanes(
      g.width,
      [&](int i) {
        const Float value = load(x + i), incoming = load(grad + i);
        store(sums + i, fma(incoming, normed(value), load(sums + i)));
        store(sums + g.width + i, load(sums + g.width + i) + incoming);
        store(target + i, finish(value, incoming * load(g.weight + i)));
      },
      [&](int i, int n) {
        const Float value = load_part(x + i, n), incoming = load_part(grad + i, n);
        store_part(sums + i, fma(incoming, normed(value), load_part(sums + i, n)), n);
        store_part(sums + g.width + i, load_part(sums + g.width + i, n) + incoming, n);
        store_part(target + i, finish(value, incoming * load_part(g.weight + i, n)), n);
      });
}

inline void layer_norm_backward(ThreadPool& threads, const LayerNormBackward& g) {
  sum_over_rows(threads, g.rows, g.width, {g.grad_weight, g.grad_bias},
                [&](size_t row, float* sums) { layer_norm_row_backward(g, row, sums); });
}

// The share of the normal distribution below x, and e^(-x^2 / 2). The polynomial is the one of its degree whose
// relative error against erfc(a / sqrt 2) / 2 * e^(a^2 / 2) is least up to a = 13.5: 3.2e-8.
struct NormalAt {
  Float share, bell;
};
TANDEM_INLINE NormalAt normal_at(Float x) {
  constexpr float kTerms[] = {-0.029125964f, 0.14387269f, -0.25550547f, 0.15893029f, -0.022937778f,
                              0.10543319f,   0.11985238f, 0.1398591f,   0.13962157f};
  const Float a = (Float)((Bits)x & 0x7fffffffu);
  const Float t = broadcast(1) / fma(broadcast(0.35f), a, broadcast(1));
  Float ratio = {};
  for (const float term : kTerms) ratio = fma(ratio, t, broadcast(term));
  const Float bell = exponential_below(broadcast(-0.5f) * (a * a));
  const Float tail = ratio * t * bell;
  return {select(x < Float{}, tail, broadcast(1) - tail), bell};
}

TANDEM_INLINE Float gelu_of(Float x) { return x * normal_at(x).share; }

// Where the bell is 0, x may be infinite, and its product with 0 would be NaN.
TANDEM_INLINE Float gelu_derivative(Float x) {
  const NormalAt normal = normal_at(x);
  const Float rise = x * normal.bell * broadcast(0.39894228f);
  return normal.share + select(normal.bell == Float{}, Float{}, rise);
}

inline void gelu(ThreadPool& threads, float* x, size_t count) {
  for_pieces(threads, count, 1 << 12, [&](size_t begin, size_t end) {
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(x + i, gelu_of(load(x + i)));
    if (i < end) {
      const int lanes = static_cast<int>(end - i);
      store_part(x + i, gelu_of(load_part(x + i, lanes)), lanes);
    }
  });
}

inline void gelu_backward(ThreadPool& threads, const float* x, size_t count, float* grad) {
  for_pieces(threads, count, 1 << 12, [&](size_t begin, size_t end) {
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(grad + i, load(grad + i) * gelu_derivative(load(x + i)));
    if (i < end) {
      const int lanes = static_cast<int>(end - i);
      store_part(grad + i, load_part(grad + i, lanes) * gelu_derivative(load_part(x + i, lanes)), lanes);
    }
  });
}

// Keys and values of one head of one sequence as panels: of each block of 64 rows keys[head_size][64] and
// values[64][columns], filled up with zeros.
class HeadPanels {
 public:
  HeadPanels(const BidirectionalAttention& g, int begin, int rows, int head)
      : size_(g.head_size),
        columns_((g.head_size + kPanelColumns - 1) / kPanelColumns * kPanelColumns),
        panels_(static_cast<size_t>((rows + kPageTokens - 1) / kPageTokens) * block_elements()) {
    for (int row = 0; row < rows; ++row) {
      const size_t source = static_cast<size_t>(begin + row) * g.stride + static_cast<size_t>(head) * size_;
      float* keys = panels_.data() + row / kPageTokens * block_elements() + row % kPageTokens;
      for (int i = 0; i < size_; ++i) keys[static_cast<size_t>(i) * kPageTokens] = g.keys[source + i];
      float* values = panels_.data() + row / kPageTokens * block_elements() + keys_elements() +
                      static_cast<size_t>(row % kPageTokens) * columns_;
      std::memcpy(values, g.values + source, size_ * sizeof(float));
    }
  }
  int columns() const { return columns_; }
  const float* keys(int block) const { return panels_.data() + block * block_elements(); }
  const float* values(int block) const { return keys(block) + keys_elements(); }

 private:
  size_t keys_elements() const { return static_cast<size_t>(size_) * kPageTokens; }
  size_t block_elements() const { return keys_elements() + static_cast<size_t>(columns_) * kPageTokens; }

  int size_, columns_;
  std::vector<float> panels_;
};

// `count` query rows from row `first` on, of a sequence of `rows` rows.
inline void attend_both_ways(const BidirectionalAttention& g, const HeadPanels& panels, int first, int count, int rows,
                             int head) {
  const int columns = panels.columns();
  alignas(64) float probabilities[kTileRows * kPageTokens];
  alignas(64) float scores[kTileRows * kPanelColumns];
  alignas(64) float gathered[kTileRows * kPanelColumns];
  alignas(64) float sums[kTileRows * kMaxHeadSize];
  std::memset(sums, 0, sizeof(float) * count * columns);
  AttentionRows states;
  const float* queries = g.queries + static_cast<size_t>(first) * g.stride + static_cast<size_t>(head) * g.head_size;
  for (int begin = 0, block = 0; begin < rows; begin += kPageTokens, ++block) {
    product_tile(LeftRows<float>{queries, g.stride}, count, panels.keys(block), g.head_size, scores);
    const int seen = std::min(kPageTokens, rows - begin);
    join_block(
        states, 0, count, scores, [](int) { return 0; }, [&](int) { return seen; }, g.scale, probabilities);
    for (int column = 0; column < columns; column += kPanelColumns) {
      product_tile(LeftRows<float>{probabilities, kPageTokens}, count, panels.values(block) + column, kPageTokens,
                   gathered, columns);
      for (int i = 0; i < count; ++i) {
        for (int c = 0; c < kPanelColumns; c += kLanes) {
          float* target = sums + i * columns + column + c;
          store(target, load(target) * broadcast(states.kept[i]) + load(gathered + i * kPanelColumns + c));
        }
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    float* target = g.out + static_cast<size_t>(first + i) * g.out_stride + static_cast<size_t>(head) * g.head_size;
    const float* row = sums + i * columns;
    const Float total = broadcast(states.sum[i]);
    for_lanes(
        g.head_size, [&](int c) { store(target + c, load(row + c) / total); },
        [&](int c, int n) { store_part(target + c, load(row + c) / total, n); });
  }
}

inline void bidirectional_attention(ThreadPool& threads, const BidirectionalAttention& g) {
  threads.run(static_cast<int>(g.ends.size()) * g.heads, [&](int task) {
    const int sequence = task / g.heads, head = task % g.heads;
    const int begin = sequence == 0 ? 0 : g.ends[sequence - 1], rows = g.ends[sequence] - begin;
    const HeadPanels panels(g, begin, rows, head);
    for (int row = 0; row < rows; row += kTileRows) {
      attend_both_ways(g, panels, begin + row, std::min(kTileRows, rows - row), rows, head);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
