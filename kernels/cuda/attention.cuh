// Attention forward: the formula and the blocks of kernels/attention.h, over pages or over whole sequences.
//
// A block of 64 threads computes one head of one query row. For each block of 64 keys a thread takes one key (score,
// and probability), then columns of the head (the sum of probabilities times values). What the row knows of the blocks
// before, every thread keeps for itself, in the same order and so with the same bits.
#pragma once

#include "kernels/cuda/execution.cuh"

namespace tandem::kernels::cuda {

constexpr int kKeyBlock = 64;  // positions of a page
constexpr int kMaxHeadSize = 576;

inline bool fits(int heads, int kv_heads, int head_size, int value_size) {
  const auto size_fits = [](int size) { return size > 0 && size % 2 == 0 && size <= kMaxHeadSize; };
  return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && size_fits(head_size) && size_fits(value_size);
}
// Values are as wide as keys where nothing is said.
template <typename Arguments>
TANDEM_HD int value_size_of(const Arguments& a) {
  return a.value_size == 0 ? a.head_size : a.value_size;
}

TANDEM_HD int smaller(int a, int b) { return a < b ? a : b; }

// The first position that a query at `position` sees.
TANDEM_HD int first_seen(int window, int position) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// a[0] b[0] + a[1] b[1] + ..., one fused chain.
template <typename T>
TANDEM_HD float dot(const T* a, const T* b, int size) {
  float sum = 0;
  TANDEM_UNROLL_8
  for (int i = 0; i < size; ++i) sum = fmaf(value_of(a[i]), value_of(b[i]), sum);
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

// Which of all heads of 64 positions, [kv_head][64] of each page, `row`'s position `position` has.
template <typename Pages>
TANDEM_HD int64_t paged(const Pages& pages, int64_t row, int position, int kv_heads, int kv_head) {
  const int64_t page = pages.table[pages.first[row] + position / kKeyBlock];
  return (page * kv_heads + kv_head) * kKeyBlock + position % kKeyBlock;
}

// One element of a row's keys, or of its values.
template <typename Arguments, bool Values>
struct WritePagesElement {
  Arguments w;
  TANDEM_HD void operator()(int64_t index) const {
    const int size = Values ? value_size_of(w) : w.head_size, width = w.kv_heads * size;
    const int64_t row = index / width;
    const int column = static_cast<int>(index % width);
    const int position = w.pages.positions[row];
    if (position < 0) return;
    const int64_t to = paged(w.pages, row, position, w.kv_heads, column / size) * size + column % size;
    if constexpr (Values) {
      w.pages.values[to] = w.values[row * w.value_stride + column];
    } else {
      w.pages.keys[to] = w.keys[row * w.key_stride + column];
    }
  }
};

template <typename Pages>
bool given(const Pages& pages) {
  return pages.keys && pages.values && pages.table && pages.first && pages.positions;
}
template <typename Execution, OneOf<TandemCudaWritePages, TandemCudaWritePagesFloat> Arguments>
int operate(Execution& execution, const Arguments& w) {
  if (!w.keys || !w.values || !given(w.pages)) return kTandemCudaNull;
  if (w.rows < 0) return kTandemCudaSize;
  if (!fits(w.kv_heads, w.kv_heads, w.head_size, value_size_of(w))) return kTandemCudaShape;
  const int64_t key_width = static_cast<int64_t>(w.kv_heads) * w.head_size;
  const int64_t value_width = static_cast<int64_t>(w.kv_heads) * value_size_of(w);
  if (w.key_stride < key_width || w.value_stride < value_width) return kTandemCudaStride;
  return in_order([&] { return each_element(execution, w.rows * key_width, WritePagesElement<Arguments, false>{w}); },
                  [&] { return each_element(execution, w.rows * value_width, WritePagesElement<Arguments, true>{w}); });
}

// The positions [first, end) that a row sees, none where it is left alone; and of whole sequences the row of position
// 0.
struct Sight {
  int first, end;
  int64_t begin;
};

// Where the keys and values of a row lie that sees a part of its sequence in pages.
template <typename Arguments>
struct InPages {
  using Element = std::remove_reference_t<decltype(*Arguments::out)>;
  Arguments a;

  TANDEM_HD int heads() const { return a.heads; }
  TANDEM_HD int value_size() const { return value_size_of(a); }
  TANDEM_HD Sight sight(int64_t row) const {
    const int position = a.pages.positions[row];
    return {first_seen(a.window, position), position + 1, 0};
  }
  TANDEM_HD int kv_head(int head) const { return head / (a.heads / a.kv_heads); }
  TANDEM_HD const Element* query(int64_t row, int head) const {
    return a.queries + row * a.query_stride + static_cast<int64_t>(head) * a.head_size;
  }
  TANDEM_HD const Element* key(const Sight&, int64_t row, int head, int position) const {
    return a.pages.keys + paged(a.pages, row, position, a.kv_heads, kv_head(head)) * a.head_size;
  }
  TANDEM_HD const Element* value(const Sight&, int64_t row, int head, int position) const {
    return a.pages.values + paged(a.pages, row, position, a.kv_heads, kv_head(head)) * value_size();
  }
  // From a position to the next within a block of 64.
  TANDEM_HD int64_t value_step() const { return value_size(); }
  TANDEM_HD void put_log_sum(int64_t row, int head, float log_sum) const {
    if (a.log_sum) a.log_sum[row * a.heads + head] = log_sum;
  }
};

template <typename Source>
struct AttentionKernel {
  using T = typename Source::Element;
  static constexpr int kThreads = kKeyBlock;
  static constexpr int kOwn = kMaxHeadSize / kThreads;  // columns of a thread
  struct Shared {
    float scores[kKeyBlock], probabilities[kKeyBlock];
  };
  struct Private {
    Sight sight;
    float maximum, sum, kept;
    float out[kOwn];
  };
  Source source;

  TANDEM_HD int64_t blocks(int64_t rows) const { return rows * source.heads(); }

  // Three phases a block of keys: scores, probabilities, values.
  TANDEM_HD bool run(int64_t block, int phase, int thread, Shared& shared, Private& own) const {
    const int64_t row = block / source.heads();
    const int head = static_cast<int>(block % source.heads());
    if (phase == 0) {
      own.sight = source.sight(row);
      own.maximum = -infinity();
      own.sum = 0;
      for (int i = 0; i < kOwn; ++i) own.out[i] = 0;
    }
    if (own.sight.end <= 0) return false;
    const int begin = (own.sight.first / kKeyBlock + phase / 3) * kKeyBlock;
    const int first = own.sight.first > begin ? own.sight.first - begin : 0;
    const int end = smaller(kKeyBlock, own.sight.end - begin);
    if (phase % 3 == 0) {
      const bool seen = thread >= first && thread < end;
      shared.scores[thread] = seen ? score(own.sight, row, head, begin + thread) : -infinity();
      return true;
    }
    if (phase % 3 == 1) {
      float next = own.maximum;
      for (int key = first; key < end; ++key) next = larger(next, shared.scores[key]);
      own.kept = own.maximum == -infinity() ? 0.0f : exponential(own.maximum - next);
      own.maximum = next;
      shared.probabilities[thread] = exponential(shared.scores[thread] - next);
      return true;
    }
    own.sum = own.sum * own.kept + sum_of_block(shared.probabilities);
    const T* const values = source.value(own.sight, row, head, begin + first);
    const int64_t step = source.value_step();
    for (int i = 0; i < kOwn && thread + i * kThreads < source.value_size(); ++i) {
      float gathered = 0;
      TANDEM_UNROLL_8
      for (int key = first; key < end; ++key) {
        const T value = values[(key - first) * step + thread + i * kThreads];
        gathered = fmaf(value_of(stored<T>(shared.probabilities[key])), value_of(value), gathered);
      }
      own.out[i] = own.out[i] * own.kept + gathered;
    }
    if (begin + kKeyBlock < own.sight.end) return true;
    T* out = source.a.out + row * source.a.out_stride + static_cast<int64_t>(head) * source.value_size();
    for (int i = 0; i < kOwn && thread + i * kThreads < source.value_size(); ++i) {
      out[thread + i * kThreads] = stored<T>(own.out[i] / own.sum);
    }
    if (thread == 0) source.put_log_sum(row, head, log_of_sum(own.maximum, own.sum));
    return false;
  }

 private:
  TANDEM_HD float score(const Sight& sight, int64_t row, int head, int position) const {
    return dot<T>(source.query(row, head), source.key(sight, row, head, position), source.a.head_size) * source.a.scale;
  }
};

// Heads that tensor cores take on a stream with tensor kernels (tensor_attention.cuh).
constexpr int kMostTensorHead = 128;
inline bool tensor_head_fits(int size) { return size % kLanes == 0 && size <= kMostTensorHead; }
template <typename Execution>
int attend_on_tensor_cores(Execution& execution, const TandemCudaAttention& a);

template <typename Execution, OneOf<TandemCudaAttention, TandemCudaAttentionFloat> Arguments>
int operate(Execution& execution, const Arguments& a) {
  if (!a.queries || !a.out || !given(a.pages)) return kTandemCudaNull;
  if (a.rows < 0) return kTandemCudaSize;
  if (!fits(a.heads, a.kv_heads, a.head_size, value_size_of(a)) || a.window < 0) return kTandemCudaShape;
  if (a.query_stride < static_cast<int64_t>(a.heads) * a.head_size) return kTandemCudaStride;
  if (a.out_stride < static_cast<int64_t>(a.heads) * value_size_of(a)) return kTandemCudaStride;
  if constexpr (OneOf<Arguments, TandemCudaAttention> && requires { execution.tensor(); }) {
    const bool fits_tensor_cores = tensor_head_fits(a.head_size) && tensor_head_fits(value_size_of(a));
    if (execution.tensor() && fits_tensor_cores) return attend_on_tensor_cores(execution, a);
  }
  const AttentionKernel<InPages<Arguments>> kernel{{a}};
  return start(execution, kernel, kernel.blocks(a.rows));
}

}  // namespace tandem::kernels::cuda
