// Operations shared by engine and trainer: the call of each kernel with its arguments, so that both make the same call.
// They differ in where results lie and what is remembered, which is in those who derive from this.
//
// Thread safety: none. Between `begin` and the end of the pass stream, weights and `adapted` must live.
#pragma once

#include <span>
#include <vector>

#include "model/batch.h"
#include "model/head_outputs.h"
#include "model/live_adapter.h"
#include "model/rotation.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

template <typename T>
class LayerOps : public BasicOps<T> {
 public:
  using Tensor = BasicTensor<T>;
  LayerOps(const ModelConfig& config, int max_positions);

 protected:
  void begin(kernels::Stream& stream, const Weights& weights, std::span<const AdaptedRows> adapted = {}) {
    stream_ = &stream;
    weights_ = &weights;
    adapted_ = adapted;
  }
  const ParameterLayout& layout() const { return weights_->layout(); }

  Status embed_rows(std::span<const int32_t> tokens, const Tensor& out) const;
  // Normalizes rows [x.rows][x.columns] at `in`, as `x` describes them, to `out`.
  Status norm_rows(const Tensor& x, const T* in, int weight, T* out) const;
  Status gate_rows(const Tensor& gate_up, const T* in, T* out) const;
  // out = x W + bias + residual, and what live adapters add to their rows. Bias -1: none; residual null: none.
  Status multiply(const Tensor& x, int weight, int bias, const T* residual, const Tensor& out);
  // Rows as the products with a parameter see them; valid until the next.
  Result<Tensor> multiplied_by(int weight, const Tensor& x);

  // Rows `rows` of the final states, one behind the other; valid until the next.
  const T* gather(const Tensor& states, std::span<const int> rows);
  // Applies the head to `rows` rows of `gather`; `picks` count them from 0.
  Status head_rows(const T* gathered, size_t rows, const HeadOutputs& outputs,
                   std::span<const kernels::TokenPick> picks, std::span<float> logprobs) const;

  const ModelConfig config_;
  const kernels::AttentionShape shape_;
  const AttentionColumns columns_;
  const Rotation rotation_;
  QuantizedActivations activations_;
  kernels::Stream* stream_ = nullptr;
  const Weights* weights_ = nullptr;

 private:
  std::span<const AdaptedRows> adapted_;
  std::vector<T> gathered_;
  AdapterProducts<T> adapter_products_;
};

extern template class LayerOps<kernels::bf16>;
extern template class LayerOps<float>;

}  // namespace tandem::model
