// Causal attention over paged keys and values, for prefill, chunked prefill, decode and training alike.
//
// For each query row and head, keys are taken in blocks of kPageTokens counted from position 0, in order; within a
// block scores, their maximum, the probabilities and their sum are formed, then joined to what came before:
//   m' = max(m, max_j s_j);  c = e^(m - m');  p_j = e^(s_j - m');  l' = c l + sum_j p_j;  o' = c o + sum_j bf16(p_j)
//   v_j
// and the result is o / l, rounded to bf16 once. Nothing in it depends on other rows, on how a prompt was cut into
// chunks, or on whether a prefix was computed or found; so the bits are the same in the engine and in the trainer.
// (Online softmax: Milakov & Gimelshein 2018; fixed blocks: see docs/numerics.md.)
//
// With a window, row i at position p sees keys p - window + 1 .. p. Blocks before the window are skipped; scores
// outside of the window in the first block, and behind p in the last, count as -infinity.
//
// A page holds kPageTokens positions of one layer and `kv_heads` heads, keys and values of K and V elements,
// width_in_page(head_size) and width_in_page(value_size), zeros behind a head's own:
//   keys   [kv_head][K / 2][position][2]      values [kv_head][position / 2][V][2]
// of bf16, and of fp32, where nothing is rounded, [kv_head][K][position] and [kv_head][position][V].
// Heads of other sizes are copied to such widths and back. This costs most in decode of a few rows and is logged once.
// Positions of a page that were never written must hold finite numbers (zero them when a page is handed out).
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"

namespace tandem::kernels {

constexpr int kPageTokens = 64;
constexpr int kMaxHeadSize = 576;
// Elements of a head in a page: whole vectors of pairs.
constexpr int width_in_page(int size) { return size <= 64 ? 64 : (size + 31) / 32 * 32; }

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;    // divides heads
  int head_size = 0;   // of queries and keys: even, at most 576
  float scale = 0;     // on the scores, usually 1 / sqrt(head_size)
  int window = 0;      // keys that a query sees, its own among them; 0: all
  int value_size = 0;  // of values: even, at most 576; 0: as wide as keys
  int values() const { return value_size > 0 ? value_size : head_size; }
};
// The first position that a query at `position` sees.
inline int first_seen(const AttentionShape& shape, int position) {
  return shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
}
// Elements of the keys, and of keys and values, of one page of one layer.
inline size_t page_keys(const AttentionShape& shape) {
  return size_t{kPageTokens} * shape.kv_heads * width_in_page(shape.head_size);
}
inline size_t page_elements(const AttentionShape& shape) {
  return page_keys(shape) + size_t{kPageTokens} * shape.kv_heads * width_in_page(shape.values());
}

template <typename T>
struct BasicKeyValuePage {
  T* keys = nullptr;
  T* values = nullptr;
};
using KeyValuePage = BasicKeyValuePage<bf16>;

// Consecutive query rows of one sequence. Row i of it stands at position `position + i` and sees keys 0 .. position +
// i, or the last `window` of them.
template <typename T>
struct BasicQueryRun {
  int row = 0;  // of `queries` and `out`
  int rows = 0;
  int position = 0;
  std::span<const BasicKeyValuePage<T>> pages;  // at least (position + rows + 63) / 64 of them
};
using QueryRun = BasicQueryRun<bf16>;

// Writes keys [row][kv_heads * head_size] and values [row][kv_heads * value_size] of `rows` tokens, with the given
// strides, at `position` onwards. Values may be the first columns of the keys.
Status write_pages(Stream& stream, const AttentionShape& shape, const bf16* keys, size_t key_stride, const bf16* values,
                   size_t value_stride, int rows, int position, std::span<const KeyValuePage> pages);
Status write_pages(Stream& stream, const AttentionShape& shape, const float* keys, size_t key_stride,
                   const float* values, size_t value_stride, int rows, int position,
                   std::span<const BasicKeyValuePage<float>> pages);

// queries [row][heads * head_size]; out [row][heads * value_size]. `log_sum` [row][heads], when given, gets m + ln l:
// what the backward pass needs.
Status attention(Stream& stream, const AttentionShape& shape, const bf16* queries, size_t query_stride,
                 std::span<const QueryRun> runs, bf16* out, size_t out_stride, float* log_sum = nullptr);
Status attention(Stream& stream, const AttentionShape& shape, const float* queries, size_t query_stride,
                 std::span<const BasicQueryRun<float>> runs, float* out, size_t out_stride, float* log_sum = nullptr);

// One run of tokens of a prefix tree for the backward pass: its queries, and the tokens that they see in order.
struct TreeRun {
  int row = 0;  // first query row, of all [row] arrays
  int rows = 0;
  std::span<const int> path;  // row numbers of the keys at positions 0, 1, ...; ends with this run's own rows
};
struct AttentionBackward {
  const bf16* queries = nullptr;  // all with the stride `stride`: columns of one fused [q | k | v] matrix, or [q | k]
                                  // where values are the first columns of the keys
  const bf16* keys = nullptr;
  const bf16* values = nullptr;
  size_t stride = 0;
  const bf16* out = nullptr;       // the forward's result, [row][heads * value_size]
  const bf16* grad_out = nullptr;  // as out
  const float* log_sum = nullptr;  // [row][heads]
  bf16* grad_queries = nullptr;    // written, stride `grad_stride`
  bf16* grad_keys = nullptr;       // written
  bf16* grad_values = nullptr;
  size_t grad_stride = 0;
  int rows = 0;  // of all arrays
};
// Trees are independent: `trees[i]` lists runs whose paths stay within that tree, parents before children. Sums run in
// the order of the runs, so results are the same bits from run to run with any number of threads.
Status attention_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward& arguments,
                          std::span<const std::vector<TreeRun>> trees);

}  // namespace tandem::kernels
