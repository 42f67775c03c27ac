// Attention as products of a few gathered query rows with the pages, which are panels of gemm.inl as they lie: scores
// are queries x keys[head_size / 2][64][2], and values[32][value_size][2] are panels of 64 columns of the head.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "kernels/cpu/lm_head.inl"

namespace tandem::kernels::TANDEM_ISA {

// Where the panel of 64 columns begins that has a head's columns from `column` on. The last one of a head that is no
// whole number of panels overlaps the one before: a column has the same bits in either.
constexpr int panel_start(int column, int size) { return std::min(column, size - kPanelColumns); }

template <typename T>
void write_pages(ThreadPool&, const AttentionShape& shape, const T* keys, size_t key_stride, const T* values,
                 size_t value_stride, int rows, int position, std::span<const BasicKeyValuePage<T>> pages);

template <>
inline void write_pages(ThreadPool&, const AttentionShape& shape, const float* keys, size_t key_stride,
                        const float* values, size_t value_stride, int rows, int position,
                        std::span<const BasicKeyValuePage<float>> pages) {
  const int size = shape.head_size, value_size = shape.values();
  for (int row = 0; row < rows; ++row) {
    const BasicKeyValuePage<float>& page = pages[(position + row) / kPageTokens];
    const int slot = (position + row) % kPageTokens;
    for (int head = 0; head < shape.kv_heads; ++head) {
      const float* key = keys + row * key_stride + head * size;
      float* page_keys = page.keys + (size_t{kPageTokens} * head * size);
      for (int i = 0; i < size; ++i) page_keys[size_t{kPageTokens} * i + slot] = key[i];
      std::memcpy(page.values + (size_t{kPageTokens} * head + slot) * value_size,
                  values + row * value_stride + head * value_size, value_size * sizeof(float));
    }
  }
}

template <>
inline void write_pages(ThreadPool&, const AttentionShape& shape, const bf16* keys, size_t key_stride,
                        const bf16* values, size_t value_stride, int rows, int position,
                        std::span<const KeyValuePage> pages) {
  const int size = shape.head_size, value_size = shape.values();
  for (int row = 0; row < rows;) {
    const KeyValuePage& page = pages[(position + row) / kPageTokens];
    const int slot = (position + row) % kPageTokens;
    // Sixteen keys that lie in one page go in together.
    const int count = rows - row >= kLanes && slot + kLanes <= kPageTokens ? kLanes : 1;
    for (int head = 0; head < shape.kv_heads; ++head) {
      const bf16* key = keys + row * key_stride + head * size;
      bf16* page_keys = page.keys + (size_t{kPageTokens} * head * size) + slot * 2;
      for (int pair = 0; pair < size / 2; pair += count == 1 ? 1 : kLanes) {
        bf16* target = page_keys + static_cast<size_t>(pair) * kPageTokens * 2;
        if (count == 1)
          std::memcpy(target, key + pair * 2, 2 * sizeof(bf16));
        else
          transpose_pairs(key + pair * 2, key_stride, target, kPageTokens * 2);
      }
      const bf16* value = values + row * value_stride + head * value_size;
      bf16* page_values = page.values + (size_t{kPageTokens} * head * value_size);
      for (int i = 0; i < count;) {
        bf16* pairs = page_values + static_cast<size_t>((slot + i) / 2 * 2) * value_size;
        if ((slot + i) % 2 == 0 && i + 1 < count) {
          for (int c = 0; c < value_size; c += kLanes) pair_up(value + c, value + value_stride + c, pairs + c * 2);
          i += 2;
          value += 2 * value_stride;
        } else {
          for (int c = 0; c < value_size; ++c) pairs[c * 2 + (slot + i) % 2] = value[c];
          ++i;
          value += value_stride;
        }
      }
    }
    row += count;
  }
}

// The state of query rows between blocks of keys: what was largest so far, the sum of e^(score - largest), and by how
// much the newest block shrank what was before it. As long as a vector may be loaded from any row on.
struct AttentionRows {
  alignas(64) float maximum[kTileRows + kLanes], sum[kTileRows + kLanes], kept[kTileRows + kLanes];
  AttentionRows() {
    std::fill(std::begin(maximum), std::end(maximum), -INFINITY);
    std::fill(std::begin(sum), std::end(sum), 0.0f);
  }
};

// Joins one block of scores to rows [begin, end): scores become probabilities (rounded to bf16 for bf16 values, zero
// where hidden). Of the keys of the block a row sees [first(row), last(row)).
template <typename T, typename First, typename Last>
TANDEM_INLINE void join_block(AttentionRows& rows, int begin, int end, float* scores, const First& first,
                              const Last& last, float scale, T* probabilities) {
  static_assert(kTileRows <= kLanes);
  float peaks[kLanes] = {};
  for (int i = begin; i < end; ++i) {
    float* row = scores + (i - begin) * kPanelColumns;
    for (int hidden = 0; hidden < first(i); ++hidden) row[hidden] = -INFINITY;
    for (int hidden = last(i); hidden < kPanelColumns; ++hidden) row[hidden] = -INFINITY;
    Float top = broadcast(-INFINITY);
    for (int unit = 0; unit < kPanelUnits; ++unit) top = maximum(top, load(row + unit * kLanes) * broadcast(scale));
    peaks[i - begin] = largest(top);
  }
  const Float before = load(rows.maximum + begin), next = maximum(before, load(peaks));
  const Float kept = select(before == broadcast(-INFINITY), Float{}, exponential_below(before - next));
  store(rows.kept + begin, kept);
  float totals[kLanes] = {};
  for (int i = begin; i < end; ++i) {
    Float sums = {};
    for (int unit = 0; unit < kPanelUnits; ++unit) {
      const float* part = scores + (i - begin) * kPanelColumns + unit * kLanes;
      const Float probability = exponential_below(load(part) * broadcast(scale) - broadcast(next[i - begin]));
      sums = sums + probability;
      store_probabilities(probabilities + i * kPageTokens + unit * kLanes, probability);
    }
    totals[i - begin] = sum(sums);
  }
  const Float total = load(rows.sum + begin) * kept + load(totals);
  for (int i = begin; i < end; ++i) {
    rows.maximum[i] = next[i - begin];
    rows.sum[i] = total[i - begin];
  }
}

// One query row of one head, of any run.
template <typename T>
struct AttentionQuery {
  const BasicQueryRun<T>* run;
  int row;   // of the run
  int head;  // of all
  int position() const { return run->position + row; }
  int last_block() const { return position() / kPageTokens; }
  int first_block(const AttentionShape& shape) const { return first_seen(shape, position()) / kPageTokens; }
};

// Up to kTileRows queries of one kv head. Rows that follow each other and see the same page (heads of a group, rows of
// a prompt, siblings with a common prefix) take it together; what a row computes does not depend on its neighbours.
template <typename T>
void attend_rows(const AttentionShape& shape, const T* queries, size_t query_stride, int kv_head,
                 std::span<const AttentionQuery<T>> rows, T* out, size_t out_stride, float* log_sum) {
  constexpr size_t kBeside = kSideBySide<T>;
  const int size = shape.head_size, value_size = shape.values(), count = static_cast<int>(rows.size());
  const size_t keys_offset = static_cast<size_t>(kPageTokens) * kv_head * size;
  const size_t values_offset = static_cast<size_t>(kPageTokens) * kv_head * value_size;
  alignas(64) T q[kTileRows * kMaxHeadSize];
  alignas(64) T probabilities[kTileRows * kPageTokens];
  alignas(64) float scores[kTileRows * kPanelColumns];
  alignas(64) float gathered[kTileRows * kPanelColumns];
  alignas(64) float sums[kTileRows * kMaxHeadSize];
  std::memset(sums, 0, sizeof(float) * count * value_size);
  AttentionRows states;
  int first = std::numeric_limits<int>::max(), last = 0;
  for (int i = 0; i < count; ++i) {
    const AttentionQuery<T>& row = rows[i];
    std::memcpy(q + i * size, queries + (row.run->row + row.row) * query_stride + row.head * size, size * sizeof(T));
    first = std::min(first, row.first_block(shape));
    last = std::max(last, row.last_block());
  }
  for (int block = first; block <= last; ++block) {
    const auto keys_of = [&](const AttentionQuery<T>& row) -> const T* {
      return block >= row.first_block(shape) && block <= row.last_block() ? row.run->pages[block].keys : nullptr;
    };
    for (int begin = 0, end = 0; begin < count; begin = end) {
      const T* keys = keys_of(rows[begin]);
      for (end = begin + 1; end < count && keys_of(rows[end]) == keys; ++end) {
      }
      if (!keys) continue;
      const T* values = rows[begin].run->pages[block].values + values_offset;
      const T* next_keys =
          block < rows[begin].last_block() ? rows[begin].run->pages[block + 1].keys + keys_offset : nullptr;
      product_tile(LeftRows<T>{q + begin * size, static_cast<size_t>(size)}, end - begin, keys + keys_offset, size,
                   scores, kPanelColumns * kBeside,
                   Ahead{reinterpret_cast<const char*>(values), sizeof(T) * kBeside * kPageTokens});
      const auto first_key = [&](int i) { return first_seen(shape, rows[i].position()) - block * kPageTokens; };
      const auto last_key = [&](int i) { return rows[i].position() + 1 - block * kPageTokens; };
      join_block(states, begin, end, scores, first_key, last_key, shape.scale, probabilities);
      for (int column = 0; column < value_size; column += kPanelColumns) {
        // values[pair][value_size][2]: a panel of 64 of its columns has the stride of the whole head.
        const int start = panel_start(column, value_size);
        product_tile(LeftRows<T>{probabilities + begin * kPageTokens, kPageTokens}, end - begin,
                     values + start * kBeside, kPageTokens, gathered, kBeside * value_size,
                     next_keys ? Ahead{reinterpret_cast<const char*>(next_keys + column * kPageTokens),
                                       sizeof(T) * kBeside * kPageTokens}
                               : Ahead{});
        for (int i = begin; i < end; ++i) {
          for (int c = column - start; c < kPanelColumns; c += kLanes) {
            float* target = sums + i * value_size + start + c;
            store(target, load(target) * broadcast(states.kept[i]) + load(gathered + (i - begin) * kPanelColumns + c));
          }
        }
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    const int row = rows[i].run->row + rows[i].row, head = rows[i].head;
    T* target = out + row * out_stride + head * value_size;
    for (int c = 0; c < value_size; c += kLanes)
      store(target + c, load(sums + i * value_size + c) / broadcast(states.sum[i]));
    if (log_sum) {
      log_sum[static_cast<size_t>(row) * shape.heads + head] =
          static_cast<float>(states.maximum[i] + std::log(static_cast<double>(states.sum[i])));
    }
  }
}

template <typename T>
void attention(ThreadPool& threads, const AttentionShape& shape, const T* queries, size_t query_stride,
               std::span<const BasicQueryRun<T>> runs, T* out, size_t out_stride, float* log_sum) {
  const int group = shape.heads / shape.kv_heads;
  constexpr int kTilesPerTask = 8;
  int rows = 0;
  for (const auto& run : runs) rows += run.rows;
  // All queries of kv head 0, row by row; those of the others are the same with other heads.
  std::vector<AttentionQuery<T>> first_head;
  first_head.reserve(static_cast<size_t>(rows) * group);
  for (const auto& run : runs) {
    for (int row = 0; row < run.rows; ++row) {
      for (int head = 0; head < group; ++head) first_head.push_back({&run, row, head});
    }
  }
  const int total = rows * group, task_rows = kTileRows * kTilesPerTask;
  const int pieces = (total + task_rows - 1) / task_rows;
  threads.run(pieces * shape.kv_heads, [&](int task) {
    const int kv_head = task % shape.kv_heads, begin = task / shape.kv_heads * task_rows;
    std::array<AttentionQuery<T>, kTileRows> tile;
    for (int first = begin; first < std::min(total, begin + task_rows); first += kTileRows) {
      const int count = std::min(kTileRows, total - first);
      for (int i = 0; i < count; ++i) {
        tile[i] = first_head[first + i];
        tile[i].head += kv_head * group;
      }
      attend_rows<T>(shape, queries, query_stride, kv_head, std::span(tile).first(count), out, out_stride, log_sum);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
