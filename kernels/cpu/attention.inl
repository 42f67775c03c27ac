// Attention as products of a few gathered query rows with the pages, which are panels of gemm.inl as they lie: scores
// are queries x keys[head_size / 2][64][2], and values[32][head_size][2] are panels of 64 columns of the head.
#pragma once

#include <array>
#include <vector>

#include "kernels/cpu/lm_head.inl"

namespace tandem::kernels::TANDEM_ISA {

constexpr int kMaxHeadSize = 256;

inline void write_pages(ThreadPool&, const AttentionShape& shape, const bf16* keys, size_t key_stride,
                        const bf16* values, size_t value_stride, int rows, int position,
                        std::span<const KeyValuePage> pages) {
  const int size = shape.head_size;
  for (int row = 0; row < rows; ++row) {
    const KeyValuePage& page = pages[(position + row) / kPageTokens];
    const int slot = (position + row) % kPageTokens;
    for (int head = 0; head < shape.kv_heads; ++head) {
      const bf16* key = keys + row * key_stride + head * size;
      const bf16* value = values + row * value_stride + head * size;
      uint32_t* key_pairs = reinterpret_cast<uint32_t*>(page.keys + size_t{kPageTokens} * head * size) + slot;
      for (int pair = 0; pair < size / 2; ++pair) key_pairs[pair * kPageTokens] = load_pair(key + pair * 2);
      bf16* value_pairs = page.values + size_t{kPageTokens} * head * size + (slot / 2) * size * 2 + slot % 2;
      for (int i = 0; i < size; ++i) value_pairs[i * 2] = value[i];
    }
  }
}

// The state of one query row between blocks of keys.
struct AttentionRow {
  float maximum = -INFINITY;
  float sum = 0;
};

// Joins one block of scores to a row: scores become probabilities (as bf16, zero where hidden), `out` is rescaled.
TANDEM_INLINE void join_block(AttentionRow& row, float* scores, int visible, float scale, bf16* probabilities,
                              float* out, int size) {
  Float parts[kPanelUnits];
  Float top = broadcast(-INFINITY);
  for (int unit = 0; unit < kPanelUnits; ++unit) {
    if (visible < (unit + 1) * kLanes) {
      for (int lane = std::max(0, visible - unit * kLanes); lane < kLanes; ++lane)
        scores[unit * kLanes + lane] = -INFINITY;
    }
    parts[unit] = load(scores + unit * kLanes) * broadcast(scale);
    top = maximum(top, parts[unit]);
  }
  const float peak = largest(top);
  const float next = row.maximum > peak ? row.maximum : peak;
  const float kept = row.maximum == -INFINITY ? 0 : exponential_of(row.maximum - next);
  Float sums = {};
  for (int unit = 0; unit < kPanelUnits; ++unit) {
    const Float probability = exponential(parts[unit] - broadcast(next));
    sums = sums + probability;
    store(probabilities + unit * kLanes, probability);
  }
  row.sum = row.sum * kept + sum(sums);
  row.maximum = next;
  for (int i = 0; i < size; i += kLanes) store(out + i, load(out + i) * broadcast(kept));
}

// One query row of one head, of any run.
struct AttentionQuery {
  const QueryRun* run;
  int row;   // of the run
  int head;  // of all
  int position() const { return run->position + row; }
  int last_block() const { return position() / kPageTokens; }
};

// Up to kTileRows queries of one kv head. Rows that follow each other and see the same page (heads of a group, rows of
// a prompt, siblings with a common prefix) take it together; what a row computes does not depend on its neighbours.
inline void attend_rows(const AttentionShape& shape, const bf16* queries, size_t query_stride, int kv_head,
                        std::span<const AttentionQuery> rows, bf16* out, size_t out_stride, float* log_sum) {
  const int size = shape.head_size, count = static_cast<int>(rows.size());
  const size_t head_offset = static_cast<size_t>(kPageTokens) * kv_head * size;
  alignas(64) bf16 q[kTileRows * kMaxHeadSize];
  alignas(64) bf16 probabilities[kTileRows * kPageTokens];
  alignas(64) float scores[kTileRows * kPanelColumns];
  alignas(64) float gathered[kTileRows * kPanelColumns];
  alignas(64) float sums[kTileRows * kMaxHeadSize];
  std::memset(sums, 0, sizeof(float) * count * size);
  std::array<AttentionRow, kTileRows> states;
  int last = 0;
  for (int i = 0; i < count; ++i) {
    const AttentionQuery& row = rows[i];
    std::memcpy(q + i * size, queries + (row.run->row + row.row) * query_stride + row.head * size, size * sizeof(bf16));
    last = std::max(last, row.last_block());
  }
  for (int block = 0; block <= last; ++block) {
    const auto keys_of = [&](const AttentionQuery& row) -> const bf16* {
      return block <= row.last_block() ? row.run->pages[block].keys : nullptr;
    };
    for (int begin = 0, end = 0; begin < count; begin = end) {
      const bf16* keys = keys_of(rows[begin]);
      for (end = begin + 1; end < count && keys_of(rows[end]) == keys; ++end) {
      }
      if (!keys) continue;
      const bf16* values = rows[begin].run->pages[block].values + head_offset;
      const bf16* next_keys =
          block < rows[begin].last_block() ? rows[begin].run->pages[block + 1].keys + head_offset : nullptr;
      product_tile({q + begin * size, static_cast<size_t>(size)}, end - begin, keys + head_offset, size, scores,
                   kPanelColumns * 2, Ahead{reinterpret_cast<const char*>(values), sizeof(bf16) * 2 * kPageTokens});
      for (int i = begin; i < end; ++i) {
        const int visible = std::min(kPageTokens, rows[i].position() + 1 - block * kPageTokens);
        join_block(states[i], scores + (i - begin) * kPanelColumns, visible, shape.scale,
                   probabilities + i * kPageTokens, sums + i * size, size);
      }
      for (int column = 0; column < size; column += kPanelColumns) {
        // values[pair][size][2]: a panel of 64 of its columns has the stride of the whole head.
        product_tile({probabilities + begin * kPageTokens, kPageTokens}, end - begin, values + column * 2, kPageTokens,
                     gathered, size_t{2} * size,
                     next_keys ? Ahead{reinterpret_cast<const char*>(next_keys + column * kPageTokens),
                                       sizeof(bf16) * 2 * kPageTokens}
                               : Ahead{});
        for (int i = begin; i < end; ++i) {
          for (int c = 0; c < kPanelColumns; c += kLanes) {
            float* target = sums + i * size + column + c;
            store(target, load(target) + load(gathered + (i - begin) * kPanelColumns + c));
          }
        }
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    const int row = rows[i].run->row + rows[i].row, head = rows[i].head;
    bf16* target = out + row * out_stride + head * size;
    for (int c = 0; c < size; c += kLanes) store(target + c, load(sums + i * size + c) / broadcast(states[i].sum));
    if (log_sum) {
      log_sum[static_cast<size_t>(row) * shape.heads + head] =
          static_cast<float>(states[i].maximum + std::log(static_cast<double>(states[i].sum)));
    }
  }
}

inline void attention(ThreadPool& threads, const AttentionShape& shape, const bf16* queries, size_t query_stride,
                      std::span<const QueryRun> runs, bf16* out, size_t out_stride, float* log_sum) {
  const int group = shape.heads / shape.kv_heads;
  constexpr int kTilesPerTask = 8;
  int rows = 0;
  for (const QueryRun& run : runs) rows += run.rows;
  // All queries of kv head 0, row by row; those of the others are the same with other heads.
  std::vector<AttentionQuery> first_head;
  first_head.reserve(static_cast<size_t>(rows) * group);
  for (const QueryRun& run : runs) {
    for (int row = 0; row < run.rows; ++row) {
      for (int head = 0; head < group; ++head) first_head.push_back({&run, row, head});
    }
  }
  const int total = rows * group, task_rows = kTileRows * kTilesPerTask;
  const int pieces = (total + task_rows - 1) / task_rows;
  threads.run(pieces * shape.kv_heads, [&](int task) {
    const int kv_head = task % shape.kv_heads, begin = task / shape.kv_heads * task_rows;
    std::array<AttentionQuery, kTileRows> tile;
    for (int first = begin; first < std::min(total, begin + task_rows); first += kTileRows) {
      const int count = std::min(kTileRows, total - first);
      for (int i = 0; i < count; ++i) {
        tile[i] = first_head[first + i];
        tile[i].head += kv_head * group;
      }
      attend_rows(shape, queries, query_stride, kv_head, std::span(tile).first(count), out, out_stride, log_sum);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
