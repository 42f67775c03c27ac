// Norms about the mean, GELU, and attention in both directions over keys and values that are laid out as panels, one
// head of one sequence a task: they are read again for every few query rows, so laying them out costs little.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention.inl"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/transformer_ops.inl"

namespace tandem::kernels::TANDEM_ISA {

TANDEM_INLINE void layer_norm_row(const LayerNorm& g, const float* x, float* target) {
  const auto width = static_cast<float>(g.width);
  Float total = {}, squares = {};
  for_lanes(
      g.width, [&](int i) { total = total + load(x + i); }, [&](int i, int n) { total = total + load_part(x + i, n); });
  const float mean = sum(total) / width;
  const auto add_square = [&](Float value) {
    const Float distance = value - broadcast(mean);
    squares = fma(distance, distance, squares);
  };
  for_lanes(
      g.width, [&](int i) { add_square(load(x + i)); }, [&](int i, int n) { add_square(load_part(x + i, n, mean)); });
  const Float inverse = broadcast(1.0f / std::sqrt(sum(squares) / width + g.epsilon));
  const auto normed = [&](Float value, Float weight, Float bias) {
    return fma((value - broadcast(mean)) * inverse, weight, bias);
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

// x times the share of the normal distribution below x. The polynomial is the one of its degree whose relative error
// against erfc(a / sqrt 2) / 2 * e^(a^2 / 2) is least up to a = 13.5: 3.2e-8.
TANDEM_INLINE Float gelu_of(Float x) {
  constexpr float kTerms[] = {-0.029125964f, 0.14387269f, -0.25550547f, 0.15893029f, -0.022937778f,
                              0.10543319f,   0.11985238f, 0.1398591f,   0.13962157f};
  const Float a = (Float)((Bits)x & 0x7fffffffu);
  const Float t = broadcast(1) / fma(broadcast(0.35f), a, broadcast(1));
  Float ratio = {};
  for (const float term : kTerms) ratio = fma(ratio, t, broadcast(term));
  const Float tail = ratio * t * exponential_below(broadcast(-0.5f) * (a * a));
  return x * (x < Float{} ? tail : broadcast(1) - tail);
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
