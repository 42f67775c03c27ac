// Causal attention over paged keys and values, forward: the formula and the blocks of kernels/attention.h.
//
// A block of 64 threads computes one head of one query row. For each block of 64 keys a thread takes one key (score,
// and probability), then columns of the head (the sum of probabilities times values). What the row knows of the blocks
// before, every thread keeps for itself, in the same order and so with the same bits.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

constexpr int kKeyBlock = 64;  // positions of a page
constexpr int kMaxHeadSize = 256;

inline bool fits(int heads, int kv_heads, int head_size) {
  return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && head_size > 0 && head_size % 64 == 0 &&
         head_size <= kMaxHeadSize;
}

TANDEM_HD int smaller(int a, int b) { return a < b ? a : b; }

// a[0] b[0] + a[1] b[1] + ..., one fused chain.
TANDEM_HD float dot(const uint16_t* a, const uint16_t* b, int size) {
  float sum = 0;
  for (int i = 0; i < size; ++i) sum = fmaf(from_bf16(a[i]), from_bf16(b[i]), sum);
  return sum;
}

// The sum of 64 numbers: in lanes of every sixteenth from 0, then the tree.
TANDEM_HD float sum_of_block(const float* values) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    float sum = 0;
    for (int i = lane; i < kKeyBlock; i += kLanes) sum = sum + values[i];
    lanes[lane] = sum;
  }
  return sum_of_lanes(lanes);
}

// Where the head `kv_head` of the key or value of `row`'s position `position` lies; pages are [kv_head][64][head_size].
TANDEM_HD int64_t paged(const TandemCudaPages& pages, int64_t row, int position, int kv_heads, int kv_head,
                        int head_size) {
  const int64_t page = pages.table[pages.first[row] + position / kKeyBlock];
  return ((page * kv_heads + kv_head) * kKeyBlock + position % kKeyBlock) * head_size;
}

struct WritePagesElement {
  TandemCudaWritePages w;
  TANDEM_HD void operator()(int64_t index) const {
    const int width = w.kv_heads * w.head_size;
    const int64_t row = index / width;
    const int column = static_cast<int>(index % width);
    const int position = w.pages.positions[row];
    if (position < 0) return;
    const int64_t to =
        paged(w.pages, row, position, w.kv_heads, column / w.head_size, w.head_size) + column % w.head_size;
    w.pages.keys[to] = w.keys[row * w.key_stride + column];
    w.pages.values[to] = w.values[row * w.value_stride + column];
  }
};

inline bool given(const TandemCudaPages& pages) {
  return pages.keys && pages.values && pages.table && pages.first && pages.positions;
}
template <typename Execution>
int operate(Execution& execution, const TandemCudaWritePages& w) {
  if (!w.keys || !w.values || !given(w.pages)) return kTandemCudaNull;
  if (w.rows < 0) return kTandemCudaSize;
  if (!fits(w.kv_heads, w.kv_heads, w.head_size)) return kTandemCudaShape;
  const int64_t width = static_cast<int64_t>(w.kv_heads) * w.head_size;
  if (w.key_stride < width || w.value_stride < width) return kTandemCudaStride;
  return each_element(execution, w.rows * width, WritePagesElement{w});
}

struct AttentionKernel {
  static constexpr int kThreads = kKeyBlock;
  static constexpr int kOwn = kMaxHeadSize / kThreads;  // columns of a thread
  struct Shared {
    float scores[kKeyBlock], probabilities[kKeyBlock];
  };
  struct Private {
    float maximum, sum, kept;
    float out[kOwn];
  };
  TandemCudaAttention a;

  TANDEM_HD int64_t blocks() const { return static_cast<int64_t>(a.rows) * a.heads; }

  // Three phases a block of keys: scores, probabilities, values.
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = block / a.heads;
    const int head = static_cast<int>(block % a.heads);
    const int kv_head = head / (a.heads / a.kv_heads);
    const int position = a.pages.positions[row];
    if (position < 0) return false;
    const int first = phase / 3 * kKeyBlock;
    const int visible = smaller(kKeyBlock, position + 1 - first);
    if (phase == 0) {
      own.maximum = -infinity();
      own.sum = 0;
      for (int i = 0; i < kOwn; ++i) own.out[i] = 0;
    }
    if (phase % 3 == 0) {
      shared.scores[thread] = thread < visible ? score(row, head, kv_head, first + thread) : -infinity();
      return true;
    }
    if (phase % 3 == 1) {
      float next = own.maximum;
      for (int key = 0; key < visible; ++key) next = larger(next, shared.scores[key]);
      own.kept = own.maximum == -infinity() ? 0.0f : exponential(own.maximum - next);
      own.maximum = next;
      shared.probabilities[thread] = exponential(shared.scores[thread] - next);
      return true;
    }
    own.sum = own.sum * own.kept + sum_of_block(shared.probabilities);
    for (int i = 0; i < kOwn && thread + i * kThreads < a.head_size; ++i) {
      own.out[i] = own.out[i] * own.kept + of_values(row, kv_head, first, visible, thread + i * kThreads, shared);
    }
    if (first + kKeyBlock <= position) return true;
    finish(row, head, thread, own);
    return false;
  }

 private:
  TANDEM_HD float score(int64_t row, int head, int kv_head, int key) const {
    const uint16_t* query = a.queries + row * a.query_stride + static_cast<int64_t>(head) * a.head_size;
    return dot(query, a.pages.keys + paged(a.pages, row, key, a.kv_heads, kv_head, a.head_size), a.head_size) * a.scale;
  }
  TANDEM_HD float of_values(int64_t row, int kv_head, int first, int visible, int column, const Shared& shared) const {
    const uint16_t* values = a.pages.values + paged(a.pages, row, first, a.kv_heads, kv_head, a.head_size) + column;
    float sum = 0;
    for (int key = 0; key < visible; ++key) {
      const float probability = from_bf16(to_bf16_bits(shared.probabilities[key]));
      sum = fmaf(probability, from_bf16(values[key * a.head_size]), sum);
    }
    return sum;
  }
  TANDEM_HD void finish(int64_t row, int head, int thread, const Private& own) const {
    uint16_t* out = a.out + row * a.out_stride + static_cast<int64_t>(head) * a.head_size;
    for (int i = 0; i < kOwn && thread + i * kThreads < a.head_size; ++i) {
      out[thread + i * kThreads] = to_bf16_bits(own.out[i] / own.sum);
    }
    if (thread == 0 && a.log_sum) a.log_sum[row * a.heads + head] = log_of_sum(own.maximum, own.sum);
  }
};

template <typename Execution>
int operate(Execution& execution, const TandemCudaAttention& a) {
  if (!a.queries || !a.out || !given(a.pages)) return kTandemCudaNull;
  if (a.rows < 0) return kTandemCudaSize;
  if (!fits(a.heads, a.kv_heads, a.head_size)) return kTandemCudaShape;
  const int64_t width = static_cast<int64_t>(a.heads) * a.head_size;
  if (a.query_stride < width || a.out_stride < width) return kTandemCudaStride;
  const AttentionKernel kernel{a};
  return start(execution, kernel, kernel.blocks());
}

}  // namespace tandem::kernels::cuda
