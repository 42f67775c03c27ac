// The transformer, defined once.
//
// `hidden_states` is the model; what it is built from is an Ops. The engine's ForwardOps runs each operation as it
// comes and forgets it, the trainer's TapeOps remembers what the backward pass needs. Both call the same kernels with
// the same arguments, so both give the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "model/parameters.h"

namespace tandem::model {

// Rows of bf16, or of fp32, owned by the Ops that made them. `id` is the Ops' own.
template <typename T>
struct BasicTensor {
  T* data = nullptr;
  int rows = 0;
  int columns = 0;
  int id = 0;
};
using Tensor = BasicTensor<kernels::bf16>;

// Parameters are indices into a ParameterLayout. Arguments may be consumed: a tensor is used once, but for what is
// dispatched, which one linear may follow, and the residual stream, which is passed to `norm` and then to what adds to
// it.
template <typename T>
class BasicOps {
 public:
  using Tensor = BasicTensor<T>;
  virtual ~BasicOps() = default;
  virtual Result<Tensor> embed() = 0;  // the tokens of the batch
  virtual Result<Tensor> norm(const Tensor& x, int weight) = 0;
  // A bias of -1 is none.
  virtual Result<Tensor> linear(const Tensor& x, int weight, int bias) = 0;
  virtual Result<Tensor> linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) = 0;  // adds to it
  virtual Result<Tensor> norm_onto(const Tensor& x, int weight, const Tensor& residual) = 0;  // residual + norm of x
  virtual Result<Tensor> head_norm(const Tensor& qkv, int query_weight, int key_weight) = 0;
  virtual Result<Tensor> attention(const Tensor& qkv, int layer) = 0;  // RoPE, then attention
  // For latent attention (latent.h): what one product made of the states into rows of queries and keys as `attention`
  // takes them, and what heads gathered of the latents into their values.
  virtual Result<Tensor> expand_latents(const Tensor& compressed, int layer) = 0;
  virtual Result<Tensor> project_values(const Tensor& gathered, int layer) = 0;
  virtual Result<Tensor> swiglu(const Tensor& gate_up) = 0;
  // Each row once for each of its experts, sorted by expert (kernels/experts.h); which they are stays with the Ops
  // until `combine` has added them up again.
  virtual Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) = 0;
  virtual Result<Tensor> grouped_linear(const Tensor& x, int weights) = 0;
  virtual Result<Tensor> combine(const Tensor& y, const Tensor& residual) = 0;
};

using Ops = BasicOps<kernels::bf16>;

// The states after the final norm, one row a token.
template <typename T>
Result<BasicTensor<T>> hidden_states(BasicOps<T>& ops, const ParameterLayout& layout);

// Latent attention is one head of keys whose values are the keys' first elements, widths filled up to multiples of 64.
kernels::AttentionShape attention_shape(const ModelConfig& config, int layer = 0);

// Where keys and values begin in a row of [queries | keys | values], and the width of what attention makes of it.
struct AttentionColumns {
  int keys = 0, values = 0, out = 0;
};
AttentionColumns attention_columns(const ModelConfig& config);

}  // namespace tandem::model
