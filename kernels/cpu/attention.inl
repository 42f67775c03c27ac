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

// A few rows of one kv head of one run: `count` (query row, head) pairs starting at `first` of rows x group.
inline void attend_rows(const AttentionShape& shape, const bf16* queries, size_t query_stride, const QueryRun& run,
                        int kv_head, int first, int count, bf16* out, size_t out_stride, float* log_sum) {
  const int group = shape.heads / shape.kv_heads, size = shape.head_size;
  alignas(64) bf16 q[kTileRows * kMaxHeadSize];
  alignas(64) bf16 probabilities[kTileRows * kPageTokens];
  alignas(64) float scores[kTileRows * kPanelColumns];
  alignas(64) float gathered[kTileRows * kPanelColumns];
  alignas(64) float sums[kTileRows * kMaxHeadSize] = {};
  std::array<AttentionRow, kTileRows> rows;
  std::array<int, kTileRows> position{};
  int last = 0;
  for (int i = 0; i < count; ++i) {
    const int row = (first + i) / group, head = kv_head * group + (first + i) % group;
    std::memcpy(q + i * size, queries + (run.row + row) * query_stride + head * size, size * sizeof(bf16));
    position[i] = run.position + row;
    last = std::max(last, position[i]);
  }
  for (int block = 0; block <= last / kPageTokens; ++block) {
    const bf16* keys = run.pages[block].keys + static_cast<size_t>(kPageTokens) * kv_head * size;
    const bf16* values = run.pages[block].values + static_cast<size_t>(kPageTokens) * kv_head * size;
    product_tile(q, size, count, keys, size, scores);
    for (int i = 0; i < count; ++i) {
      const int visible = std::min(kPageTokens, position[i] + 1 - block * kPageTokens);
      if (visible > 0) {
        join_block(rows[i], scores + i * kPanelColumns, visible, shape.scale, probabilities + i * kPageTokens,
                   sums + i * size, size);
      } else {
        std::memset(probabilities + i * kPageTokens, 0, kPageTokens * sizeof(bf16));
      }
    }
    for (int column = 0; column < size; column += kPanelColumns) {
      // values[pair][size][2]: a panel of 64 of its columns has the stride of the whole head.
      product_tile(probabilities, kPageTokens, count, values + column * 2, kPageTokens, gathered, size_t{2} * size);
      for (int i = 0; i < count; ++i) {
        if (position[i] < block * kPageTokens) continue;
        for (int c = 0; c < kPanelColumns; c += kLanes) {
          float* target = sums + i * size + column + c;
          store(target, load(target) + load(gathered + i * kPanelColumns + c));
        }
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    const int row = run.row + (first + i) / group, head = kv_head * group + (first + i) % group;
    bf16* target = out + row * out_stride + head * size;
    for (int c = 0; c < size; c += kLanes) store(target + c, load(sums + i * size + c) / broadcast(rows[i].sum));
    if (log_sum) {
      log_sum[static_cast<size_t>(row) * shape.heads + head] =
          static_cast<float>(rows[i].maximum + std::log(static_cast<double>(rows[i].sum)));
    }
  }
}

inline void attention(ThreadPool& threads, const AttentionShape& shape, const bf16* queries, size_t query_stride,
                      std::span<const QueryRun> runs, bf16* out, size_t out_stride, float* log_sum) {
  const int group = shape.heads / shape.kv_heads;
  constexpr int kTilesPerTask = 8;
  struct Task {
    int run, kv_head, first, count;
  };
  std::vector<Task> tasks;
  for (int r = 0; r < static_cast<int>(runs.size()); ++r) {
    const int total = runs[r].rows * group;
    for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      for (int first = 0; first < total; first += kTileRows * kTilesPerTask) {
        tasks.push_back({r, kv_head, first, std::min(kTileRows * kTilesPerTask, total - first)});
      }
    }
  }
  threads.run(static_cast<int>(tasks.size()), [&](int index) {
    const Task& task = tasks[index];
    for (int done = 0; done < task.count; done += kTileRows) {
      attend_rows(shape, queries, query_stride, runs[task.run], task.kv_head, task.first + done,
                  std::min(kTileRows, task.count - done), out, out_stride, log_sum);
    }
  });
}

}  // namespace tandem::kernels::TANDEM_ISA
