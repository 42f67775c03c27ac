#include "model/gradients.h"

#include "model/panels.h"

namespace tandem::model {

Status linear_backward(kernels::Stream& stream, const Weights& weights, int weight, kernels::Gemm arguments) {
  arguments.b = Panels(weights).packed_transposed(weight);
  return kernels::gemm(stream, arguments);
}

Status grouped_linear_backward(kernels::Stream& stream, const Weights& weights, int parameter,
                               kernels::GroupedGemm arguments) {
  arguments.b = Panels(weights).packed_transposed(parameter);
  return kernels::grouped_gemm(stream, arguments);
}

Status latent_queries_backward(kernels::Stream& stream, const Weights& weights, int layer,
                               kernels::BatchedGemm arguments) {
  const auto panels = Panels(weights).split_transposed(weights.layout().layers[layer].key_value_up);
  arguments.b = panels.absorbed;
  arguments.b_group = panels.stride;
  return kernels::batched_gemm(stream, arguments);
}

Status latent_values_backward(kernels::Stream& stream, const Weights& weights, int layer,
                              kernels::BatchedGemm arguments) {
  const auto panels = Panels(weights).split_transposed(weights.layout().layers[layer].key_value_up);
  arguments.b = panels.rest;
  arguments.b_group = panels.stride;
  return kernels::batched_gemm(stream, arguments);
}

Status norm_backward(kernels::Stream& stream, const Weights& weights, int weight, kernels::RmsNormBackward arguments) {
  arguments.weight = Panels(weights).values(weight);
  return kernels::rms_norm_backward(stream, arguments);
}

Status head_norm_backward(kernels::Stream& stream, const Weights& weights, int weight,
                          kernels::HeadNormBackward arguments) {
  arguments.weight = Panels(weights).values(weight);
  return kernels::head_norm_backward(stream, arguments);
}

Status head_backward(kernels::Stream& stream, const Weights& weights, kernels::LmHeadBackward arguments,
                     std::span<const kernels::TokenPick> picks, std::span<const float> grad_logprobs,
                     std::span<float> entropy_rows) {
  const int head = weights.layout().head;
  arguments.head = Panels(weights).packed(head).panels;
  arguments.head_transposed = Panels(weights).packed_transposed(head);
  arguments.width = weights.config().width;
  arguments.vocabulary = weights.config().vocabulary;
  return kernels::lm_head_backward(stream, arguments, picks, grad_logprobs, entropy_rows);
}

}  // namespace tandem::model
