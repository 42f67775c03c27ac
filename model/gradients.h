// The operations of the backward pass that read weights. The caller names parameters and owns all gradients; where the
// weights lie stays inside.
//
// Weights must be for training, and the ones of the forward pass. Arguments of kernels come without their weights,
// which are filled in. Gradients of inputs are written, gradients of weights are added to, as the kernels have it.
//
// Thread safety: as the kernels'.
#pragma once

#include <span>

#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/lm_head.h"
#include "kernels/transformer_ops.h"
#include "model/weights.h"

namespace tandem::model {

// Backward pass of out = x W: the gradient of x (n inputs) from that of out (k outputs).
Status linear_backward(kernels::Stream& stream, const Weights& weights, int weight, kernels::Gemm arguments);
// The same of each row in its place by its expert's matrix (routes.h).
Status grouped_linear_backward(kernels::Stream& stream, const Weights& weights, int parameter,
                               kernels::GroupedGemm arguments);

// For the products of latent attention with the parts of key_value_up, head by head: `queries` of the absorbed rows,
// `values` of the rest.
Status latent_queries_backward(kernels::Stream& stream, const Weights& weights, int layer,
                               kernels::BatchedGemm arguments);
Status latent_values_backward(kernels::Stream& stream, const Weights& weights, int layer,
                              kernels::BatchedGemm arguments);

Status norm_backward(kernels::Stream& stream, const Weights& weights, int weight, kernels::RmsNormBackward arguments);
Status head_norm_backward(kernels::Stream& stream, const Weights& weights, int weight,
                          kernels::HeadNormBackward arguments);

// kernels::lm_head_backward with the model's head.
Status head_backward(kernels::Stream& stream, const Weights& weights, kernels::LmHeadBackward arguments,
                     std::span<const kernels::TokenPick> picks, std::span<const float> grad_logprobs,
                     std::span<float> entropy_rows);

}  // namespace tandem::model
