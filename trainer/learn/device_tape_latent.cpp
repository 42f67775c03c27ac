// The tape of a device at latent attention, read from the end: as tape_latent.cpp, whose buffers have the same names.
#include <utility>

#include "model/latent.h"
#include "trainer/learn/device_tape.h"

namespace tandem::trainer {

using kernels::address, kernels::beyond;
using model::grown;

Status Tape::DevicePass::copy_columns(const Columns& from, size_t from_group, Element* to, size_t to_stride,
                                      size_t to_group, int groups) {
  return stream_->run(TandemCudaPlaceColumns{.x = address(from.data),
                                             .stride = from.stride,
                                             .group = static_cast<int64_t>(from_group),
                                             .out = address(to),
                                             .out_stride = static_cast<int64_t>(to_stride),
                                             .out_group = static_cast<int64_t>(to_group),
                                             .rows = rows_,
                                             .groups = groups,
                                             .columns = from.count,
                                             .width = from.count});
}

Status Tape::DevicePass::project_values_backward(const Record& r) {
  const model::LatentConfig& latent = config_.latent;
  const int weight = layout_.layers[r.layer].key_value_up, width = shape_.values();
  const size_t of_head = static_cast<size_t>(latent.plain + latent.value) * latent.rank;
  const size_t to_values = static_cast<size_t>(latent.plain) * latent.rank;
  const int grad_stride = r.out.columns, stride = r.in.columns;
  for (int head = 0; learns(weight) && head < config_.heads; ++head) {
    TRY(add_gradient(
        beyond(grad_of(weight), head * of_head + to_values),
        {beyond(r.in.data, static_cast<size_t>(head) * width), stride, latent.rank},
        {beyond(grad_branch_.data(), static_cast<size_t>(head) * latent.value), grad_stride, latent.value}));
  }
  // What fills the latents up to whole panels was not read.
  Element* const grad = TRY(grown(*stream_, grad_spare_, static_cast<size_t>(rows_) * stride));
  TRY(clear(grad, rows_, stride));
  TRY(stream_->run(TandemCudaBatchedGemm{.a = address(grad_branch_.data()),
                                         .a_stride = grad_stride,
                                         .a_group = latent.value,
                                         .b = address(beyond(weights_->values<bf16>(weight), to_values)),
                                         .b_row_stride = 1,
                                         .b_k_stride = latent.rank,
                                         .b_group = static_cast<int64_t>(of_head),
                                         .out = address(grad),
                                         .out_stride = stride,
                                         .out_group = width,
                                         .groups = config_.heads,
                                         .m = rows_,
                                         .n = latent.rank,
                                         .k = latent.value}));
  std::swap(grad_branch_, grad_spare_);
  return {};
}

// In grad_wide_ lie the gradients of [queries by head | key | the key's first elements as values].
Status Tape::DevicePass::expand_latents_backward(const Record& r) {
  const model::LatentConfig& latent = config_.latent;
  const model::LayerParameters& layer = layout_.layers[r.layer];
  const int width = shape_.head_size, heads = config_.heads, head_size = config_.head_size;
  const int64_t wide = int64_t{heads + 1} * width + shape_.values();
  const int stride = r.in.columns, queries = heads * head_size, query_columns = model::query_columns(config_);
  const size_t of_head = static_cast<size_t>(latent.plain + latent.value) * latent.rank;
  const size_t latents = static_cast<size_t>(rows_) * latent.rank;
  const bool made = latent.query_rank > 0;
  Element* const grad_wide = grad_wide_.data();
  Element* const grad = TRY(grown(*stream_, grad_spare_, static_cast<size_t>(rows_) * stride));

  // The latent was read as key and as value.
  Element* const of_key = beyond(grad_wide, static_cast<size_t>(heads) * width);
  Element* const target = beyond(grad, static_cast<size_t>(query_columns));
  Element* const both = TRY(grown(*stream_, grad_latents_, 2 * latents));
  TRY(copy_columns({of_key, wide, latent.rank}, width, both, latent.rank, latents, 2));
  TRY(add(both, beyond(both, latents), latents));
  TRY(copy_columns({both, latent.rank, latent.rank}, 0, target, stride, 0, 1));
  TRY(copy_columns({beyond(of_key, static_cast<size_t>(latent.rank)), wide, latent.rope_dim}, 0,
                   beyond(target, static_cast<size_t>(latent.rank)), stride, 0, 1));
  const auto norm_backward = [&](int weight, int first) {
    return head_norm_backward(weight, beyond(r.in.data, first), beyond(grad, first), stride, model::kLatentNormEpsilon,
                              1, layout_.parameters[weight].columns);
  };
  TRY(norm_backward(layer.key_norm, query_columns));

  const model::DeviceLatentQueries<bf16>& kept = latents_[r.layer];
  Element* const of_queries = made ? kept.queries.data() : r.in.data;
  const int query_stride = made ? queries : stride;
  for (int head = 0; learns(layer.key_value_up) && head < heads; ++head) {
    TRY(add_gradient(beyond(grad_of(layer.key_value_up), head * of_head),
                     {beyond(grad_wide, static_cast<size_t>(head) * width), wide, latent.rank},
                     {beyond(of_queries, static_cast<size_t>(head) * head_size), query_stride, latent.plain}));
  }
  Element* const grad_queries = made ? TRY(grown(*stream_, grad_queries_, static_cast<size_t>(rows_) * queries)) : grad;
  TRY(stream_->run(TandemCudaBatchedGemm{.a = address(grad_wide),
                                         .a_stride = wide,
                                         .a_group = width,
                                         .b = address(weights_->values<bf16>(layer.key_value_up)),
                                         .b_row_stride = latent.rank,
                                         .b_k_stride = 1,
                                         .b_group = static_cast<int64_t>(of_head),
                                         .out = address(grad_queries),
                                         .out_stride = query_stride,
                                         .out_group = head_size,
                                         .groups = heads,
                                         .m = rows_,
                                         .n = latent.plain,
                                         .k = latent.rank}));
  TRY(copy_columns({beyond(grad_wide, static_cast<size_t>(latent.rank)), wide, latent.rope_dim}, width,
                   beyond(grad_queries, static_cast<size_t>(latent.plain)), query_stride, head_size, heads));
  if (made) {
    if (learns(layer.query_up)) {
      const Tensor normed{kept.normed.data(), rows_, latent.query_rank, 0};
      TRY(add_weight_gradient(layer.query_up, TRY(multiplied_by(layer.query_up, normed)), latent.query_rank,
                              grad_queries, queries));
    }
    TRY(input_gradient(layer.query_up, grad_queries, queries, nullptr, {grad, stride, latent.query_rank}));
    TRY(norm_backward(layer.query_norm, 0));
  }
  std::swap(grad_wide_, grad_spare_);
  return {};
}

}  // namespace tandem::trainer
