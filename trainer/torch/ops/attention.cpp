// Causal attention, forward and backward.
//
// PyTorch has [batch, heads, positions, size], the kernels have rows of positions with all heads side by side. What a
// model makes by `x.view(batch, positions, heads, size).transpose(1, 2)` lies as the kernels want it and is not copied.
#include "kernels/attention.h"

#include <cmath>

#include "trainer/torch/ops/arguments.h"
#include "trainer/torch/ops/operators.h"
#include "trainer/torch/ops/streams.h"

namespace tandem::torch_ops {

using kernels::bf16;

namespace {

// Dense [batch, positions, heads, size] of all three.
struct AttentionInput {
  Tensor queries, keys, values;
  int batch = 0, asked = 0, seen = 0;  // positions of queries, and of keys
  kernels::AttentionShape shape;
};

Tensor rows_first(const Arguments& check, const Tensor& tensor, const char* argument) {
  check.require(tensor.dim() == 4, argument, " has ", tensor.dim(),
                " dimensions, expected [batch, heads, positions, size]");
  return check.bf16(torch::stable::transpose(tensor, 1, 2), argument);
}

AttentionInput attention_input(const Arguments& check, const Tensor& query, const Tensor& key, const Tensor& value,
                               std::optional<double> scale, int64_t window) {
  AttentionInput all{rows_first(check, query, "query"), rows_first(check, key, "key"),
                     rows_first(check, value, "value")};
  const Tensor &q = all.queries, &k = all.keys, &v = all.values;
  all.batch = check.size(q.size(0), "the batch");
  all.asked = check.size(q.size(1), "the number of positions");
  all.seen = check.size(k.size(1), "the number of positions");
  check.size(q.size(0) * k.size(1), "batch x positions");
  const auto same = [&](int64_t a, int64_t b) { return a == b; };
  check.require(same(k.size(0), all.batch) && same(v.size(0), all.batch), "query, key and value are of other batches");
  check.require(same(v.size(1), all.seen), "key has ", all.seen, " positions, but value has ", v.size(1));
  check.require(same(v.size(2), k.size(2)), "key has ", k.size(2), " heads, but value has ", v.size(2));
  check.require(same(q.size(3), k.size(3)), "query has heads of ", q.size(3), ", but key of ", k.size(3));
  check.require(all.asked <= all.seen, "query has ", all.asked, " positions, more than the ", all.seen, " of key");
  check.require(window >= 0, "window is ", window);
  kernels::AttentionShape& shape = all.shape;
  shape.heads = check.size(q.size(2), "the number of heads");
  shape.kv_heads = check.size(k.size(2), "the number of heads");
  shape.head_size = check.size(q.size(3), "the size of a head");
  shape.value_size = check.size(v.size(3), "the size of a value");
  check.require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "the ", shape.heads,
                " heads of query are no multiple of the ", shape.kv_heads, " of key");
  check.require(shape.head_size > 0 && shape.value_size > 0, "heads have no elements");
  shape.scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(shape.head_size))));
  shape.window = window >= all.seen ? 0 : static_cast<int>(window);
  return all;
}

// Keys and values of one sequence, in pages.
struct SequencePages {
  std::vector<bf16> memory;
  std::vector<kernels::KeyValuePage> pages;
};

SequencePages pages_of(const Arguments& check, kernels::Stream& stream, const AttentionInput& all, int sequence) {
  const auto& shape = all.shape;
  const int count = (all.seen + kernels::kPageTokens - 1) / kernels::kPageTokens;
  SequencePages result{std::vector<bf16>(kernels::page_elements(shape) * count), {}};
  for (int page = 0; page < count; ++page) {
    bf16* keys = result.memory.data() + kernels::page_elements(shape) * page;
    result.pages.push_back({keys, keys + kernels::page_keys(shape)});
  }
  const size_t key_stride = static_cast<size_t>(shape.kv_heads) * shape.head_size;
  const size_t value_stride = static_cast<size_t>(shape.kv_heads) * shape.values();
  const size_t first = static_cast<size_t>(sequence) * all.seen;
  check.check(kernels::write_pages(stream, shape, in<bf16>(all.keys) + first * key_stride, key_stride,
                                   in<bf16>(all.values) + first * value_stride, value_stride, all.seen, 0,
                                   result.pages));
  return result;
}

// `rows` rows of `width` elements, from one stride to another.
void copy_rows(const bf16* from, size_t from_stride, bf16* to, size_t to_stride, int rows, size_t width) {
  for (int row = 0; row < rows; ++row) std::copy_n(from + row * from_stride, width, to + row * to_stride);
}

}  // namespace

std::tuple<Tensor, Tensor> attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                             std::optional<double> scale, int64_t window) {
  const Arguments check("attention");
  const AttentionInput all = attention_input(check, query, key, value, scale, window);
  const auto& shape = all.shape;
  const Tensor result =
      made_like(all.queries, {all.batch, all.asked, shape.heads, shape.values()}, ScalarType::BFloat16);
  const Tensor log_sum = made_like(all.queries, {all.batch, all.asked, shape.heads}, ScalarType::Float);
  if (result.numel() > 0) {
    BorrowedStream stream;
    std::vector<SequencePages> pages;
    std::vector<kernels::QueryRun> runs;
    for (int i = 0; i < all.batch; ++i) pages.push_back(pages_of(check, *stream, all, i));
    for (int i = 0; i < all.batch; ++i)
      runs.push_back(
          {.row = i * all.asked, .rows = all.asked, .position = all.seen - all.asked, .pages = pages[i].pages});
    check.check(kernels::attention(*stream, shape, in<bf16>(all.queries),
                                   static_cast<size_t>(shape.heads) * shape.head_size, runs, out<bf16>(result),
                                   static_cast<size_t>(shape.heads) * shape.values(), out<float>(log_sum)));
  }
  return {torch::stable::transpose(result, 1, 2), log_sum};
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, std::optional<double> scale,
                 int64_t window) {
  return std::get<0>(attention_forward(query, key, value, scale, window));
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& forward, const Tensor& log_sum,
                                                      std::optional<double> scale, int64_t window) {
  const Arguments check("attention_backward");
  const AttentionInput all = attention_input(check, query, key, value, scale, window);
  const auto& shape = all.shape;
  check.require(all.asked == all.seen, "query has ", all.asked, " positions and key ", all.seen,
                ": gradients are of whole sequences");
  const Tensor result = rows_first(check, forward, "out"), of_out = rows_first(check, grad, "grad");
  const Tensor sums = check.dense(log_sum, ScalarType::Float, "log_sum");
  const std::vector<int64_t> expected = {all.batch, all.asked, shape.heads, shape.values()};
  check.require(sizes_of(result) == expected && sizes_of(of_out) == expected,
                "out and grad are not of the forward pass");
  check.require(sizes_of(sums) == std::vector<int64_t>(expected.begin(), expected.end() - 1),
                "log_sum is not of the forward pass");
  const Tensor grad_q = made_like(all.queries, sizes_of(all.queries), ScalarType::BFloat16);
  const Tensor grad_k = made_like(all.keys, sizes_of(all.keys), ScalarType::BFloat16);
  const Tensor grad_v = made_like(all.values, sizes_of(all.values), ScalarType::BFloat16);
  const int rows = all.batch * all.seen;
  if (rows > 0) {
    // One matrix [q | k | v], as a fused projection makes it.
    const size_t q = static_cast<size_t>(shape.heads) * shape.head_size;
    const size_t k = static_cast<size_t>(shape.kv_heads) * shape.head_size;
    const size_t v = static_cast<size_t>(shape.kv_heads) * shape.values(), stride = q + k + v;
    std::vector<bf16> fused(rows * stride), gradients(rows * stride);
    copy_rows(in<bf16>(all.queries), q, fused.data(), stride, rows, q);
    copy_rows(in<bf16>(all.keys), k, fused.data() + q, stride, rows, k);
    copy_rows(in<bf16>(all.values), v, fused.data() + q + k, stride, rows, v);
    std::vector<int> paths(rows);
    for (int row = 0; row < rows; ++row) paths[row] = row;
    std::vector<std::vector<kernels::TreeRun>> trees;
    for (int i = 0; i < all.batch; ++i)
      trees.push_back(
          {{.row = i * all.seen, .rows = all.seen, .path = std::span(paths).subspan(i * all.seen, all.seen)}});
    BorrowedStream stream;
    check.check(kernels::attention_backward(*stream, shape,
                                            {.queries = fused.data(),
                                             .keys = fused.data() + q,
                                             .values = fused.data() + q + k,
                                             .stride = stride,
                                             .out = in<bf16>(result),
                                             .grad_out = in<bf16>(of_out),
                                             .log_sum = in<float>(sums),
                                             .grad_queries = gradients.data(),
                                             .grad_keys = gradients.data() + q,
                                             .grad_values = gradients.data() + q + k,
                                             .grad_stride = stride,
                                             .rows = rows},
                                            trees));
    copy_rows(gradients.data(), stride, out<bf16>(grad_q), q, rows, q);
    copy_rows(gradients.data() + q, stride, out<bf16>(grad_k), k, rows, k);
    copy_rows(gradients.data() + q + k, stride, out<bf16>(grad_v), v, rows, v);
  }
  return {torch::stable::transpose(grad_q, 1, 2), torch::stable::transpose(grad_k, 1, 2),
          torch::stable::transpose(grad_v, 1, 2)};
}

}  // namespace tandem::torch_ops
