// The public functions of an encoder's operations: arguments checked, then handed to the instruction set of the stream.
#include "kernels/encoder_ops.h"

#include <fmt/format.h>

#include "kernels/argument_check.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

Status layer_norm(Stream& stream, const LayerNorm& a) {
  TRY(Check{"layer_norm"}
          .given("x", a.x)
          .given("weight", a.weight)
          .given("bias", a.bias)
          .given("out", a.out)
          .positive("rows", a.rows)
          .that(a.width > 0, "width must be positive")
          .status);
  stream.operations().layer_norm(stream.threads(), a);
  return {};
}

Status layer_norm_backward(Stream& stream, const LayerNormBackward& a) {
  TRY(Check{"layer_norm_backward"}
          .given("x", a.x)
          .given("weight", a.weight)
          .given("grad_out", a.grad_out)
          .given("grad_x", a.grad_x)
          .given("grad_weight", a.grad_weight)
          .given("grad_bias", a.grad_bias)
          .positive("rows", a.rows)
          .that(a.width > 0, "width must be positive")
          .status);
  stream.operations().layer_norm_backward(stream.threads(), a);
  return {};
}

Status gelu(Stream& stream, float* x, size_t count) {
  TRY(Check{"gelu"}.given("x", x).status);
  stream.operations().gelu(stream.threads(), x, count);
  return {};
}

Status gelu_backward(Stream& stream, const float* x, size_t count, float* grad) {
  TRY(Check{"gelu_backward"}.given("x", x).given("grad", grad).status);
  stream.operations().gelu_backward(stream.threads(), x, count, grad);
  return {};
}

Status bidirectional_attention(Stream& stream, const BidirectionalAttention& a) {
  const size_t width = static_cast<size_t>(a.heads) * a.head_size;
  TRY(Check{"bidirectional_attention"}
          .given("queries", a.queries)
          .given("keys", a.keys)
          .given("values", a.values)
          .given("out", a.out)
          .that(a.heads > 0, "heads must be positive")
          .that(a.head_size > 0 && a.head_size <= 256, "head_size must be 1 to 256")
          .that(a.stride >= width, "stride is below heads * head_size")
          .that(a.out_stride >= width, "out_stride is below heads * head_size")
          .status);
  int32_t last = 0;
  for (size_t i = 0; i < a.ends.size(); ++i) {
    if (a.ends[i] < last) {
      return Status::invalid(
          fmt::format("bidirectional_attention: sequence {} ends at row {}, before row {}", i, a.ends[i], last));
    }
    last = a.ends[i];
  }
  stream.operations().bidirectional_attention(stream.threads(), a);
  return {};
}

}  // namespace tandem::kernels
