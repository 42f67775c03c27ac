#include "model/head_norms.h"

#include "kernels/transformer_ops.h"
#include "model/panels.h"

namespace tandem::model {

template <typename T>
Status norm_heads(kernels::Stream& stream, const Weights& weights, int query_weight, int key_weight,
                  const BasicTensor<T>& qkv) {
  const ModelConfig& config = weights.config();
  const auto norm = [&](T* x, int weight, int heads) {
    return kernels::head_norm(stream, kernels::BasicHeadNorm<T>{.x = x,
                                                                .stride = static_cast<size_t>(qkv.columns),
                                                                .weight = Panels(weights).values<T>(weight),
                                                                .epsilon = static_cast<float>(config.norm_epsilon),
                                                                .rows = qkv.rows,
                                                                .heads = heads,
                                                                .head_size = config.head_size});
  };
  TRY(norm(qkv.data, query_weight, config.heads));
  return norm(qkv.data + config.heads * config.head_size, key_weight, config.kv_heads);
}

template Status norm_heads(kernels::Stream&, const Weights&, int, int, const Tensor&);
template Status norm_heads(kernels::Stream&, const Weights&, int, int, const BasicTensor<float>&);

}  // namespace tandem::model
