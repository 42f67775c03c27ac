// The operators, as PyTorch's dispatcher calls them for tensors of a CPU. Private to trainer/torch/ops/.
//
// Each checks its tensors and calls one kernel of kernels/, whose header says the order of additions: a row of a result
// has the same bits whatever rows are beside it and whatever the number of threads. Everything is bf16 where nothing
// else is said; gradients are summed in fp32 and rounded to bf16 once.
//
// Thread safety: any thread. Only PyTorch's stable ABI is used, so a build runs with later releases, too.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace tandem::torch_ops {

using torch::stable::Tensor;

// x [.., k] by weight [n, k]: [.., n]. k even.
Tensor linear(const Tensor& x, const Tensor& weight, std::optional<Tensor> bias);
// Gradients, each by itself, since a frozen weight needs none.
Tensor linear_grad_x(const Tensor& grad, const Tensor& weight);
Tensor linear_grad_weight(const Tensor& grad, const Tensor& x);
Tensor linear_grad_bias(const Tensor& grad);
// A weight as the kernels read it, for `linear_packed`, which has the bits of `linear`: [n / 64 * k / 2 * 64 * 2],
// flat.
Tensor pack_weight(const Tensor& weight);
Tensor linear_packed(const Tensor& x, const Tensor& packed, int64_t n, std::optional<Tensor> bias);

// x [.., width] by weight [width].
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, double eps);

// Causal. query [batch, heads, t, size], key [batch, kv_heads, s, size], value [batch, kv_heads, s, value_size] as
// scaled_dot_product_attention takes them; queries are the last t of s positions. A query sees the last `window`
// positions, 0: all. The result is [batch, heads, t, value_size], in memory [batch, t, heads, value_size].
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, std::optional<double> scale,
                 int64_t window);
// And the log-sum of each row's scores, fp32 [batch, t, heads], which the backward pass needs; it wants t = s.
std::tuple<Tensor, Tensor> attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                             std::optional<double> scale, int64_t window);
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& forward, const Tensor& log_sum,
                                                      std::optional<double> scale, int64_t window);

// The log-probability of each token after its state: hidden [.., width], weight [vocabulary, width], tokens int64 [..]:
// fp32 [..]. No logits are stored.
Tensor lm_head_logprob(const Tensor& hidden, const Tensor& weight, const Tensor& tokens);
// And the logarithm of each row's sum, fp32 [..].
std::tuple<Tensor, Tensor> lm_head_forward(const Tensor& hidden, const Tensor& weight, const Tensor& tokens);
// Gradients of hidden, and of weight where `of_weight`, else of no elements; `grad` is fp32 [..].
std::tuple<Tensor, Tensor> lm_head_backward(const Tensor& grad, const Tensor& hidden, const Tensor& weight,
                                            const Tensor& tokens, const Tensor& log_sum, bool of_weight);

// E4M3 codes of x's shape, and a power of two for each block as float8_e8m0fnu: blocks of 128 (fp8) or 32 (mxfp8)
// elements of a row; of a weight [n, k] of 128 x 128.
std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& x);
std::tuple<Tensor, Tensor> quantize_mxfp8(const Tensor& x);
std::tuple<Tensor, Tensor> quantize_weight_fp8(const Tensor& weight);
// bf16 again, exactly. `block` columns share a scale, 128 or 32, and `block_rows` rows, 1 or of a weight 128.
Tensor dequantize(const Tensor& codes, const Tensor& scales, int64_t block, int64_t block_rows);

}  // namespace tandem::torch_ops
