// Attention's public functions: arguments checked, then handed to the instruction set of the stream. Instruction sets
// compute heads that are whole vectors; others are filled up with zeros on the way in and lose them on the way out.
#include "kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/argument_check.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

namespace {

Status check_shape(const char* operation, const AttentionShape& s) {
  return Check{operation}
      .that(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, "heads must be a multiple of kv_heads")
      .that(s.head_size > 0 && s.head_size % 2 == 0 && s.head_size <= kMaxHeadSize,
            "head_size must be even, at most 576")
      .that(s.value_size >= 0 && s.value_size % 2 == 0 && s.value_size <= kMaxHeadSize,
            "value_size must be even, at most 576")
      .that(s.window >= 0, "window must not be negative")
      .status;
}

AttentionShape widened(AttentionShape shape) {
  shape.value_size = width_in_page(shape.values());
  shape.head_size = width_in_page(shape.head_size);
  return shape;
}
// Else copies are made, which the stream tells.
bool is_wide(Stream& stream, const AttentionShape& shape) {
  const AttentionShape wide = widened(shape);
  if (wide.head_size == shape.head_size && wide.value_size == shape.values()) return true;
  stream.tell_slow("attention copies heads whose sizes are below 64 or no multiples of 32 to such sizes and back");
  return false;
}

// Heads of `size` elements, of each of `rows` rows, as heads of width_in_page(size).
template <typename T>
void widen(const T* from, size_t from_stride, int rows, int heads, int size, T* to, size_t to_stride) {
  const int width = width_in_page(size);
  for (int row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    for (int head = 0; head < heads; ++head) {
      std::copy_n(from + head * size, size, to + head * width);
      std::fill(to + head * width + size, to + (head + 1) * width, T{});
    }
  }
}
template <typename T>
void narrow(const T* from, size_t from_stride, int rows, int heads, int size, T* to, size_t to_stride) {
  const int width = width_in_page(size);
  for (int row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    for (int head = 0; head < heads; ++head) std::copy_n(from + head * width, size, to + head * size);
  }
}

template <typename T>
Status checked_write_pages(Stream& stream, const AttentionShape& shape, const T* keys, size_t key_stride,
                           const T* values, size_t value_stride, int rows, int position,
                           std::span<const BasicKeyValuePage<T>> pages) {
  TRY(check_shape("write_pages", shape));
  TRY(Check{"write_pages"}
          .positive("rows", rows)
          .positive("position", position)
          .given("keys", keys)
          .given("values", values)
          .that(pages.size() * kPageTokens >= static_cast<size_t>(position) + rows, "too few pages for the positions")
          .status);
  const auto write = stream.operations().in<T>().write_pages;
  if (is_wide(stream, shape)) {
    write(stream.threads(), shape, keys, key_stride, values, value_stride, rows, position, pages);
    return {};
  }
  const AttentionShape wide = widened(shape);
  const size_t key_width = static_cast<size_t>(wide.kv_heads) * wide.head_size;
  const size_t value_width = static_cast<size_t>(wide.kv_heads) * wide.value_size;
  std::vector<T> wide_keys(rows * key_width), wide_values(rows * value_width);
  widen(keys, key_stride, rows, shape.kv_heads, shape.head_size, wide_keys.data(), key_width);
  widen(values, value_stride, rows, shape.kv_heads, shape.values(), wide_values.data(), value_width);
  write(stream.threads(), wide, wide_keys.data(), key_width, wide_values.data(), value_width, rows, position, pages);
  return {};
}

template <typename T>
Status checked_attention(Stream& stream, const AttentionShape& shape, const T* queries, size_t query_stride,
                         std::span<const BasicQueryRun<T>> runs, T* out, size_t out_stride, float* log_sum) {
  TRY(check_shape("attention", shape));
  Check check{"attention"};
  check.given("queries", queries).given("out", out);
  int rows = 0;
  for (const auto& run : runs) {
    check.positive("row", run.row)
        .positive("rows", run.rows)
        .positive("position", run.position)
        .that(run.pages.size() * kPageTokens >= static_cast<size_t>(run.position) + run.rows,
              "a run has too few pages for its positions");
    rows = std::max(rows, run.row + run.rows);
  }
  TRY(check.status);
  const auto attend = stream.operations().in<T>().attention;
  if (is_wide(stream, shape)) {
    attend(stream.threads(), shape, queries, query_stride, runs, out, out_stride, log_sum);
    return {};
  }
  const AttentionShape wide = widened(shape);
  const size_t width = static_cast<size_t>(wide.heads) * wide.head_size;
  const size_t out_width = static_cast<size_t>(wide.heads) * wide.value_size;
  std::vector<T> wide_queries(rows * width), wide_out(rows * out_width);
  for (const auto& run : runs)
    widen(queries + run.row * query_stride, query_stride, run.rows, shape.heads, shape.head_size,
          wide_queries.data() + run.row * width, width);
  attend(stream.threads(), wide, wide_queries.data(), width, runs, wide_out.data(), out_width, log_sum);
  for (const auto& run : runs)
    narrow(wide_out.data() + run.row * out_width, out_width, run.rows, shape.heads, shape.values(),
           out + run.row * out_stride, out_stride);
  return {};
}

// As one fused matrix of wide heads, and its gradient.
void backward_of_narrow_heads(Stream& stream, const AttentionShape& shape, const AttentionBackward& a,
                              std::span<const std::vector<TreeRun>> trees) {
  const AttentionShape wide = widened(shape);
  const size_t keys = static_cast<size_t>(wide.heads) * wide.head_size;
  const size_t values = keys + static_cast<size_t>(wide.kv_heads) * wide.head_size;
  const size_t stride = values + static_cast<size_t>(wide.kv_heads) * wide.value_size;
  const size_t out_stride = static_cast<size_t>(shape.heads) * shape.values();
  const size_t wide_out_stride = static_cast<size_t>(wide.heads) * wide.value_size;
  std::vector<bf16> fused(a.rows * stride), gradient(a.rows * stride);
  std::vector<bf16> out(a.rows * wide_out_stride), grad_out(a.rows * wide_out_stride);
  widen(a.queries, a.stride, a.rows, shape.heads, shape.head_size, fused.data(), stride);
  widen(a.keys, a.stride, a.rows, shape.kv_heads, shape.head_size, fused.data() + keys, stride);
  widen(a.values, a.stride, a.rows, shape.kv_heads, shape.values(), fused.data() + values, stride);
  widen(a.out, out_stride, a.rows, shape.heads, shape.values(), out.data(), wide_out_stride);
  widen(a.grad_out, out_stride, a.rows, shape.heads, shape.values(), grad_out.data(), wide_out_stride);
  stream.operations().attention_backward(stream.threads(), wide,
                                         {.queries = fused.data(),
                                          .keys = fused.data() + keys,
                                          .values = fused.data() + values,
                                          .stride = stride,
                                          .out = out.data(),
                                          .grad_out = grad_out.data(),
                                          .log_sum = a.log_sum,
                                          .grad_queries = gradient.data(),
                                          .grad_keys = gradient.data() + keys,
                                          .grad_values = gradient.data() + values,
                                          .grad_stride = stride,
                                          .rows = a.rows},
                                         trees);
  for (const auto& runs : trees) {
    for (const TreeRun& run : runs) {
      const bf16* from = gradient.data() + run.row * stride;
      const size_t to = run.row * a.grad_stride;
      narrow(from, stride, run.rows, shape.heads, shape.head_size, a.grad_queries + to, a.grad_stride);
      narrow(from + keys, stride, run.rows, shape.kv_heads, shape.head_size, a.grad_keys + to, a.grad_stride);
      narrow(from + values, stride, run.rows, shape.kv_heads, shape.values(), a.grad_values + to, a.grad_stride);
    }
  }
}

}  // namespace

Status write_pages(Stream& stream, const AttentionShape& shape, const bf16* keys, size_t key_stride, const bf16* values,
                   size_t value_stride, int rows, int position, std::span<const BasicKeyValuePage<bf16>> pages) {
  return checked_write_pages(stream, shape, keys, key_stride, values, value_stride, rows, position, pages);
}
Status write_pages(Stream& stream, const AttentionShape& shape, const float* keys, size_t key_stride,
                   const float* values, size_t value_stride, int rows, int position,
                   std::span<const BasicKeyValuePage<float>> pages) {
  return checked_write_pages(stream, shape, keys, key_stride, values, value_stride, rows, position, pages);
}

Status attention(Stream& stream, const AttentionShape& shape, const bf16* queries, size_t query_stride,
                 std::span<const BasicQueryRun<bf16>> runs, bf16* out, size_t out_stride, float* log_sum) {
  return checked_attention(stream, shape, queries, query_stride, runs, out, out_stride, log_sum);
}
Status attention(Stream& stream, const AttentionShape& shape, const float* queries, size_t query_stride,
                 std::span<const BasicQueryRun<float>> runs, float* out, size_t out_stride, float* log_sum) {
  return checked_attention(stream, shape, queries, query_stride, runs, out, out_stride, log_sum);
}

Status attention_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward& a,
                          std::span<const std::vector<TreeRun>> trees) {
  TRY(check_shape("attention_backward", shape));
  Check check{"attention_backward"};
  check.given("queries", a.queries)
      .given("keys", a.keys)
      .given("values", a.values)
      .given("out", a.out)
      .given("grad_out", a.grad_out)
      .given("log_sum", a.log_sum)
      .given("grad_queries", a.grad_queries)
      .given("grad_keys", a.grad_keys)
      .given("grad_values", a.grad_values)
      .positive("rows", a.rows);
  for (const auto& runs : trees) {
    for (const TreeRun& run : runs) {
      check.that(run.row >= 0 && run.rows >= 0 && run.row + run.rows <= a.rows, "a run lies outside the rows")
          .that(run.path.size() >= static_cast<size_t>(run.rows), "a path is shorter than its run");
    }
  }
  TRY(check.status);
  if (is_wide(stream, shape))
    stream.operations().attention_backward(stream.threads(), shape, a, trees);
  else
    backward_of_narrow_heads(stream, shape, a, trees);
  return {};
}

}  // namespace tandem::kernels
