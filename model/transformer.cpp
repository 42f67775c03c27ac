#include "model/transformer.h"

#include <cmath>

#include "kernels/device_stream.h"
#include "model/rope.h"

namespace tandem::model {

namespace {

// Adds a linear of x to the residual stream, through a norm where the model has one there.
template <typename T>
Result<BasicTensor<T>> add_linear(BasicOps<T>& ops, const BasicTensor<T>& x, int weight, int bias, int norm,
                                  const BasicTensor<T>& residual) {
  if (norm < 0) return ops.linear_onto(x, weight, bias, residual);
  const auto out = TRY(ops.linear(x, weight, bias));
  return ops.norm_onto(out, norm, residual);
}

}  // namespace

template <typename T>
Result<BasicTensor<T>> hidden_states(BasicOps<T>& ops, const ParameterLayout& layout) {
  using Tensor = BasicTensor<T>;
  Tensor x = TRY(ops.embed());
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& layer = layout.layers[i];
    const Tensor attention_in = TRY(ops.norm(x, layer.attention_norm));
    Tensor qkv = TRY(ops.linear(attention_in, layer.qkv, layer.qkv_bias));
    const bool latent = layer.key_value_up >= 0;
    if (latent)
      qkv = TRY(ops.expand_latents(qkv, static_cast<int>(i)));
    else if (layer.query_norm >= 0)
      qkv = TRY(ops.head_norm(qkv, layer.query_norm, layer.key_norm));
    Tensor attended = TRY(ops.attention(qkv, static_cast<int>(i)));
    if (latent) attended = TRY(ops.project_values(attended, static_cast<int>(i)));
    x = TRY(add_linear(ops, attended, layer.output, layer.output_bias, layer.attention_post_norm, x));
    const Tensor mlp_in = TRY(ops.norm(x, layer.mlp_norm));
    if (layer.router < 0) {
      const Tensor gate_up = TRY(ops.linear(mlp_in, layer.gate_up, -1));
      const Tensor mixed = TRY(ops.swiglu(gate_up));
      x = TRY(add_linear(ops, mixed, layer.down, -1, layer.mlp_post_norm, x));
    } else {
      const Tensor dispatched = TRY(ops.dispatch(mlp_in, layer.router, layer.router_bias));
      if (layer.shared_gate_up >= 0) {
        const Tensor shared = TRY(ops.swiglu(TRY(ops.linear(mlp_in, layer.shared_gate_up, -1))));
        x = TRY(ops.linear_onto(shared, layer.shared_down, -1, x));
      }
      const Tensor gate_up = TRY(ops.grouped_linear(dispatched, layer.gate_up));
      const Tensor mixed = TRY(ops.swiglu(gate_up));
      const Tensor said = TRY(ops.grouped_linear(mixed, layer.down));
      x = TRY(ops.combine(said, x));
    }
  }
  return ops.norm(x, layout.final_norm);
}

template Result<Tensor> hidden_states(Ops&, const ParameterLayout&);
template Result<BasicTensor<float>> hidden_states(BasicOps<float>&, const ParameterLayout&);
template Result<BasicTensor<kernels::OnDevice<kernels::bf16>>> hidden_states(
    BasicOps<kernels::OnDevice<kernels::bf16>>&, const ParameterLayout&);
template Result<BasicTensor<kernels::OnDevice<float>>> hidden_states(BasicOps<kernels::OnDevice<float>>&,
                                                                     const ParameterLayout&);

kernels::AttentionShape attention_shape(const ModelConfig& config, int layer) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_size));
  const auto whole_panels = [](int size) { return (size + 63) / 64 * 64; };
  if (const LatentConfig& latent = config.latent; latent.rank > 0) {
    return {.heads = config.heads,
            .kv_heads = 1,
            .head_size = whole_panels(latent.rank + latent.rope_dim),
            .scale = static_cast<float>(scale * rope_score_factor(config.rope)),
            .value_size = whole_panels(latent.rank)};
  }
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .scale = static_cast<float>(scale),
          .window = config.window_of(layer)};
}

AttentionColumns attention_columns(const ModelConfig& config) {
  const kernels::AttentionShape shape = attention_shape(config);
  const int keys = shape.heads * shape.head_size;
  const int values = config.latent.rank > 0 ? keys : keys + shape.kv_heads * shape.head_size;
  return {keys, values, shape.heads * shape.values()};
}

}  // namespace tandem::model
