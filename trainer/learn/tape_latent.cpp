// Latent attention read from the end: what `expand_latents` and `project_values` did, and the gradients of their
// matrices.
//
// Each head's part of kv_b_proj has its own gradient, [rows of the head][rank], added in the order of rows: of keys it
// is plain^T g with g the gradient of the query that was taken to the latents, of values g^T gathered.
#include <algorithm>
#include <utility>

#include "kernels/transformer_ops.h"
#include "model/gradients.h"
#include "trainer/learn/tape_ops.h"

namespace tandem::trainer {

namespace {

// Columns [0, columns) of rows of some stride, dense.
template <typename T>
const T* dense_columns(const T* x, size_t stride, int rows, int columns, std::vector<T>& buffer) {
  T* dense = grown(buffer, static_cast<size_t>(rows) * columns);
  for (int row = 0; row < rows; ++row)
    std::copy_n(x + row * stride, columns, dense + static_cast<size_t>(row) * columns);
  return dense;
}

}  // namespace

template <typename T>
Status Tape::TapeOps<T>::add_strided_gradient(float* target, const T* x, size_t x_stride, int inputs, const T* grad_out,
                                              size_t grad_stride, int outputs) {
  const int even_rows = (rows_ + 1) / 2 * 2;
  T* packed_x = grown(packed_, kernels::packed_size(inputs, even_rows));
  TRY(kernels::pack_transposed(*stream_, dense_columns(x, x_stride, rows_, inputs, columns_of_x_), rows_, inputs,
                               packed_x));
  T* packed_grad = grown(packed_grad_, kernels::packed_size(outputs, even_rows));
  TRY(kernels::pack_transposed(*stream_, dense_columns(grad_out, grad_stride, rows_, outputs, columns_of_grad_), rows_,
                               outputs, packed_grad));
  return kernels::gemm(*stream_, {.a = packed_grad,
                                  .a_packed = true,
                                  .b = packed_x,
                                  .out_float = target,
                                  .out_stride = static_cast<size_t>(inputs),
                                  .accumulate = true,
                                  .m = outputs,
                                  .n = inputs,
                                  .k = even_rows});
}

template <typename T>
Status Tape::TapeOps<T>::project_values_backward(const Record& r) {
  const model::LatentConfig& latent = config_.latent;
  const int weight = layout().layers[r.layer].key_value_up, width = shape_.values();
  const size_t of_head = static_cast<size_t>(latent.plain + latent.value) * latent.rank;
  const size_t grad_stride = r.out.columns, stride = r.in.columns;
  for (int head = 0; learns(weight) && head < config_.heads; ++head) {
    float* target = grad_of(weight) + head * of_head + static_cast<size_t>(latent.plain) * latent.rank;
    TRY(add_strided_gradient(target, r.in.data + static_cast<size_t>(head) * width, stride, latent.rank,
                             grad_branch_.data() + static_cast<size_t>(head) * latent.value, grad_stride,
                             latent.value));
  }
  // What fills the latents up to whole panels was not read.
  T* grad = grown(grad_spare_, rows_ * stride);
  std::fill_n(grad, rows_ * stride, T{});
  TRY(model::latent_values_backward(*stream_, *weights_, r.layer,
                                    {.a = grad_branch_.data(),
                                     .a_stride = grad_stride,
                                     .a_group = static_cast<size_t>(latent.value),
                                     .out = grad,
                                     .out_stride = stride,
                                     .out_group = static_cast<size_t>(width),
                                     .groups = config_.heads,
                                     .m = rows_,
                                     .n = latent.rank,
                                     .k = latent.value}));
  std::swap(grad_branch_, grad_spare_);
  return {};
}

// In grad_wide_ lie the gradients of [queries by head | key | the key's first elements as values].
template <typename T>
Status Tape::TapeOps<T>::expand_latents_backward(const Record& r) {
  const model::LatentConfig& latent = config_.latent;
  const model::LayerParameters& layer = layout().layers[r.layer];
  const int width = shape_.head_size, heads = config_.heads, head_size = config_.head_size;
  const size_t wide = static_cast<size_t>(heads + 1) * width + shape_.values(), stride = r.in.columns;
  const size_t query_columns = model::query_columns(config_), queries = static_cast<size_t>(heads) * head_size;
  const bool made = latent.query_rank > 0;
  const T* grad_wide = grad_wide_.data();
  T* grad = grown(grad_spare_, rows_ * stride);
  for (int row = 0; row < rows_; ++row) {
    const T* of_key = grad_wide + row * wide + static_cast<size_t>(heads) * width;
    T* target = grad + row * stride + query_columns;
    for (int i = 0; i < latent.rank; ++i)
      target[i] = kernels::to_bf16(kernels::to_float(of_key[i]) + kernels::to_float(of_key[width + i]));
    std::copy_n(of_key + latent.rank, latent.rope_dim, target + latent.rank);
  }
  const auto norm_backward = [&](int weight, size_t first) {
    return model::head_norm_backward(*stream_, *weights_, weight,
                                     {.x = r.in.data + first,
                                      .grad = grad + first,
                                      .stride = stride,
                                      .grad_weight = grad_of_norm(weight),
                                      .epsilon = model::kLatentNormEpsilon,
                                      .rows = rows_,
                                      .heads = 1,
                                      .head_size = layout().parameters[weight].columns});
  };
  TRY(norm_backward(layer.key_norm, query_columns));

  const model::LatentQueries<T>& kept = latents_[r.layer];
  const T* of_queries = made ? kept.queries.data() : r.in.data;
  const size_t query_stride = made ? queries : stride;
  for (int head = 0; learns(layer.key_value_up) && head < heads; ++head) {
    float* target =
        grad_of(layer.key_value_up) + static_cast<size_t>(head) * (latent.plain + latent.value) * latent.rank;
    TRY(add_strided_gradient(target, grad_wide + static_cast<size_t>(head) * width, wide, latent.rank,
                             of_queries + static_cast<size_t>(head) * head_size, query_stride, latent.plain));
  }
  T* grad_queries = made ? grown(grad_queries_, rows_ * queries) : grad;
  TRY(model::latent_queries_backward(*stream_, *weights_, r.layer,
                                     {.a = grad_wide,
                                      .a_stride = wide,
                                      .a_group = static_cast<size_t>(width),
                                      .out = grad_queries,
                                      .out_stride = query_stride,
                                      .out_group = static_cast<size_t>(head_size),
                                      .groups = heads,
                                      .m = rows_,
                                      .n = latent.plain,
                                      .k = latent.rank}));
  for (int row = 0; row < rows_; ++row) {
    for (int head = 0; head < heads; ++head) {
      std::copy_n(grad_wide + row * wide + static_cast<size_t>(head) * width + latent.rank, latent.rope_dim,
                  grad_queries + row * query_stride + static_cast<size_t>(head) * head_size + latent.plain);
    }
  }
  if (made) {
    Tensor normed = {.data = const_cast<T*>(kept.normed.data()), .rows = rows_, .columns = latent.query_rank};
    normed = TRY(multiplied_by(layer.query_up, normed));
    if (learns(layer.query_up)) {
      TRY(add_weight_gradient(layer.query_up, normed.data, latent.query_rank, grad_queries, static_cast<int>(queries)));
    }
    TRY(model::linear_backward(*stream_, *weights_, layer.query_up,
                               {.a = grad_queries,
                                .a_stride = queries,
                                .out = grad,
                                .out_stride = stride,
                                .m = rows_,
                                .n = latent.query_rank,
                                .k = static_cast<int>(queries)}));
    TRY(norm_backward(layer.query_norm, 0));
  }
  std::swap(grad_wide_, grad_spare_);
  return {};
}

template Status Tape::TapeOps<bf16>::project_values_backward(const Record&);
template Status Tape::TapeOps<bf16>::expand_latents_backward(const Record&);

}  // namespace tandem::trainer
