// Shapes of what the operators give, without computing: for torch.compile, fake tensors and the meta device. Sizes may
// be symbolic. Checked is what a shape follows from; the kernels check the rest.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

namespace tandem::torch_ops {

namespace {

using at::Tensor;
using c10::SymInt;

c10::SymDimVector sizes_of(const Tensor& tensor) { return {tensor.sym_sizes().begin(), tensor.sym_sizes().end()}; }

Tensor made(const Tensor& like, const c10::SymDimVector& sizes, c10::ScalarType type) {
  return at::empty_symint(sizes, like.options().dtype(type));
}

// `sizes` of tensor with another last extent.
c10::SymDimVector with_last(const Tensor& tensor, SymInt last) {
  c10::SymDimVector sizes = sizes_of(tensor);
  TORCH_CHECK(!sizes.empty(), "tandem: expected a tensor of one dimension at least");
  sizes.back() = std::move(last);
  return sizes;
}

Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& /*bias*/) {
  TORCH_CHECK(weight.dim() == 2, "tandem::linear: weight has ", weight.dim(), " dimensions, expected [out, in]");
  const c10::SymDimVector sizes = with_last(x, weight.sym_size(0));
  TORCH_SYM_CHECK(x.sym_size(-1).sym_eq(weight.sym_size(1)), "tandem::linear: x has ", x.sym_size(-1),
                  " columns, but weight has ", weight.sym_size(1));
  return made(x, sizes, at::kBFloat16);
}

Tensor linear_grad_x(const Tensor& grad, const Tensor& weight) {
  return made(grad, with_last(grad, weight.sym_size(1)), at::kBFloat16);
}

Tensor linear_grad_weight(const Tensor& grad, const Tensor& x) {
  return made(x, {grad.sym_size(-1), x.sym_size(-1)}, at::kBFloat16);
}

Tensor linear_grad_bias(const Tensor& grad) { return made(grad, {grad.sym_size(-1)}, at::kBFloat16); }

constexpr int64_t kPanelColumns = 64;  // kernels/gemm.h

Tensor pack_weight(const Tensor& weight) {
  const SymInt panels = (weight.sym_size(0) + (kPanelColumns - 1)) / kPanelColumns;
  return made(weight, {panels * kPanelColumns * weight.sym_size(1)}, at::kBFloat16);
}

Tensor linear_packed(const Tensor& x, const Tensor& /*packed*/, int64_t n, const std::optional<Tensor>& /*bias*/) {
  return made(x, with_last(x, n), at::kBFloat16);
}

Tensor rms_norm(const Tensor& x, const Tensor& /*weight*/, double /*eps*/) {
  return made(x, sizes_of(x), at::kBFloat16);
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& /*grad*/, const Tensor& x, const Tensor& weight,
                                             double /*eps*/) {
  return {made(x, sizes_of(x), at::kBFloat16), made(weight, sizes_of(weight), at::kBFloat16)};
}

// In memory positions come before heads.
Tensor heads_first(const Tensor& like, const c10::SymInt& size) {
  TORCH_CHECK(like.dim() == 4, "tandem::attention: expected [batch, heads, positions, size]");
  return made(like, {like.sym_size(0), like.sym_size(2), like.sym_size(1), size}, at::kBFloat16).transpose(1, 2);
}

std::tuple<Tensor, Tensor> attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                             std::optional<double> /*scale*/, int64_t /*window*/) {
  TORCH_CHECK(key.dim() == 4 && value.dim() == 4, "tandem::attention: expected [batch, heads, positions, size]");
  return {heads_first(query, value.sym_size(3)),
          made(query, {query.sym_size(0), query.sym_size(2), query.sym_size(1)}, at::kFloat)};
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, std::optional<double> scale,
                 int64_t window) {
  return std::get<0>(attention_forward(query, key, value, scale, window));
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& /*grad*/, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& /*out*/,
                                                      const Tensor& /*log_sum*/, std::optional<double> /*scale*/,
                                                      int64_t /*window*/) {
  return {heads_first(query, query.sym_size(3)), heads_first(key, key.sym_size(3)),
          heads_first(value, value.sym_size(3))};
}

std::tuple<Tensor, Tensor> lm_head_forward(const Tensor& hidden, const Tensor& /*weight*/, const Tensor& tokens) {
  return {made(hidden, sizes_of(tokens), at::kFloat), made(hidden, sizes_of(tokens), at::kFloat)};
}

Tensor lm_head_logprob(const Tensor& hidden, const Tensor& weight, const Tensor& tokens) {
  return std::get<0>(lm_head_forward(hidden, weight, tokens));
}

std::tuple<Tensor, Tensor> lm_head_backward(const Tensor& /*grad*/, const Tensor& hidden, const Tensor& weight,
                                            const Tensor& /*tokens*/, const Tensor& /*log_sum*/, bool of_weight) {
  return {made(hidden, sizes_of(hidden), at::kBFloat16),
          made(weight, of_weight ? sizes_of(weight) : c10::SymDimVector{0}, at::kBFloat16)};
}

SymInt blocks_of(const SymInt& count, int64_t block) { return (count + (block - 1)) / block; }

std::tuple<Tensor, Tensor> quantize_rows(const Tensor& x, int64_t block) {
  return {made(x, sizes_of(x), at::kFloat8_e4m3fn),
          made(x, with_last(x, blocks_of(x.sym_size(-1), block)), at::kFloat8_e8m0fnu)};
}
std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& x) { return quantize_rows(x, 128); }
std::tuple<Tensor, Tensor> quantize_mxfp8(const Tensor& x) { return quantize_rows(x, 32); }

std::tuple<Tensor, Tensor> quantize_weight_fp8(const Tensor& weight) {
  return {made(weight, sizes_of(weight), at::kFloat8_e4m3fn),
          made(weight, {blocks_of(weight.sym_size(0), 128), blocks_of(weight.sym_size(1), 128)}, at::kFloat8_e8m0fnu)};
}

Tensor dequantize(const Tensor& codes, const Tensor& /*scales*/, int64_t /*block*/, int64_t /*block_rows*/) {
  return made(codes, sizes_of(codes), at::kBFloat16);
}

TORCH_LIBRARY_IMPL(tandem, Meta, m) {
  m.impl("linear", &linear);
  m.impl("linear_grad_x", &linear_grad_x);
  m.impl("linear_grad_weight", &linear_grad_weight);
  m.impl("linear_grad_bias", &linear_grad_bias);
  m.impl("pack_weight", &pack_weight);
  m.impl("linear_packed", &linear_packed);
  m.impl("rms_norm", &rms_norm);
  m.impl("rms_norm_backward", &rms_norm_backward);
  m.impl("attention", &attention);
  m.impl("attention_forward", &attention_forward);
  m.impl("attention_backward", &attention_backward);
  m.impl("lm_head_logprob", &lm_head_logprob);
  m.impl("lm_head_forward", &lm_head_forward);
  m.impl("lm_head_backward", &lm_head_backward);
  m.impl("quantize_fp8", &quantize_fp8);
  m.impl("quantize_mxfp8", &quantize_mxfp8);
  m.impl("quantize_weight_fp8", &quantize_weight_fp8);
  m.impl("dequantize", &dequantize);
}

}  // namespace
}  // namespace tandem::torch_ops
