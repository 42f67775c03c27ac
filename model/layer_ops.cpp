#include "model/layer_ops.h"

#include <algorithm>
#include <type_traits>

#include "kernels/transformer_ops.h"
#include "model/live_adapter.h"
#include "model/panels.h"

namespace tandem::model {

template <typename T>
LayerOps<T>::LayerOps(const ModelConfig& config, int max_positions)
    : config_(config),
      shape_(attention_shape(config)),
      columns_(attention_columns(config)),
      rotation_(config, max_positions) {}

template <typename T>
Status LayerOps<T>::embed_rows(std::span<const int32_t> tokens, const Tensor& out) const {
  return kernels::embed(*stream_, Panels(*weights_).values<T>(layout().embedding), config_.vocabulary, config_.width,
                        tokens, out.data);
}

template <typename T>
Status LayerOps<T>::norm_rows(const Tensor& x, const T* in, int weight, T* out) const {
  return kernels::rms_norm(*stream_, in, Panels(*weights_).values<T>(weight), static_cast<float>(config_.norm_epsilon),
                           x.rows, x.columns, out);
}

template <typename T>
Status LayerOps<T>::gate_rows(const Tensor& gate_up, const T* in, T* out) const {
  return kernels::swiglu(*stream_, in, gate_up.rows, gate_up.columns / 2, out);
}

template <typename T>
Status LayerOps<T>::multiply(const Tensor& x, int weight, int bias, const T* residual, const Tensor& out) {
  TRY(kernels::gemm(*stream_, {.a = TRY(multiplied_by(weight, x)).data,
                               .a_stride = static_cast<size_t>(x.columns),
                               .b = Panels(*weights_).packed<T>(weight),
                               .bias = bias < 0 ? nullptr : Panels(*weights_).values<T>(bias),
                               .residual = residual,
                               .out = out.data,
                               .out_stride = static_cast<size_t>(out.columns),
                               .m = x.rows,
                               .n = out.columns,
                               .k = x.columns}));
  if (const LiveAdapter* const live = weights_->live_adapter()) {
    const AdaptedRows all{live, 0, x.rows};
    return adapter_products_.add(*stream_, weight, x, out, std::span(&all, 1));
  }
  if (adapted_.empty()) return {};
  return adapter_products_.add(*stream_, weight, x, out, adapted_);
}

template <typename T>
Result<BasicTensor<T>> LayerOps<T>::multiplied_by(int weight, const Tensor& x) {
  Tensor seen = x;
  if constexpr (std::is_same_v<T, kernels::bf16>) {
    seen.data = const_cast<T*>(TRY(activations_.of(*stream_, weights_->format_of(weight), x.data, x.rows, x.columns)));
  }
  return seen;
}

template <typename T>
const T* LayerOps<T>::gather(const Tensor& states, std::span<const int> rows) {
  const size_t width = states.columns;
  gathered_.resize(std::max(gathered_.size(), rows.size() * width));
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(states.data + rows[i] * width, width, gathered_.data() + i * width);
  return gathered_.data();
}

template <typename T>
Status LayerOps<T>::head_rows(const T* gathered, size_t rows, const HeadOutputs& outputs,
                              std::span<const kernels::TokenPick> picks, std::span<float> logprobs) const {
  return kernels::lm_head(*stream_,
                          {.hidden = gathered,
                           .head = Panels(*weights_).packed<T>(layout().head).panels,
                           .rows = static_cast<int>(rows),
                           .width = config_.width,
                           .vocabulary = config_.vocabulary,
                           .logits = outputs.logits,
                           .log_sum = outputs.log_sum,
                           .argmax = outputs.argmax,
                           .panel_sums = outputs.panel_sums,
                           .logit_scales = outputs.logit_scales,
                           .kept = outputs.kept},
                          picks, logprobs);
}

template class LayerOps<kernels::bf16>;
template class LayerOps<float>;

}  // namespace tandem::model
