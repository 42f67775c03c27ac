#include "model/transformer.h"

#include <cmath>

namespace tandem::model {

Result<Tensor> hidden_states(Ops& ops, const ParameterLayout& layout) {
  Tensor x = TRY(ops.embed());
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& layer = layout.layers[i];
    const Tensor attention_in = TRY(ops.norm(x, layer.attention_norm));
    Tensor qkv = TRY(ops.linear(attention_in, layer.qkv, layer.qkv_bias));
    if (layer.query_norm >= 0) qkv = TRY(ops.head_norm(qkv, layer.query_norm, layer.key_norm));
    const Tensor attended = TRY(ops.attention(qkv, static_cast<int>(i)));
    x = TRY(ops.linear_onto(attended, layer.output, layer.output_bias, x));
    const Tensor mlp_in = TRY(ops.norm(x, layer.mlp_norm));
    if (layer.router < 0) {
      const Tensor gate_up = TRY(ops.linear(mlp_in, layer.gate_up, -1));
      const Tensor mixed = TRY(ops.swiglu(gate_up));
      x = TRY(ops.linear_onto(mixed, layer.down, -1, x));
    } else {
      const Tensor dispatched = TRY(ops.dispatch(mlp_in, layer.router));
      const Tensor gate_up = TRY(ops.grouped_linear(dispatched, layer.gate_up));
      const Tensor mixed = TRY(ops.swiglu(gate_up));
      const Tensor said = TRY(ops.grouped_linear(mixed, layer.down));
      x = TRY(ops.combine(said, x));
    }
  }
  return ops.norm(x, layout.final_norm);
}

kernels::AttentionShape attention_shape(const ModelConfig& config) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_size)))};
}

}  // namespace tandem::model
