// How much a pass keeps: of a row, by walking over the model without computing it, and of all rows once it was
// computed.
#include "trainer/learn/tape_ops.h"

namespace tandem::trainer {

namespace {

// Follows the shapes of one row through a model as TapeOps does, and adds up what that keeps.
class RowCounter final : public model::BasicOps<bf16> {
 public:
  using Tensor = model::BasicTensor<bf16>;
  RowCounter(const model::ModelConfig& config, const model::ParameterLayout& layout)
      : config_(config),
        layout_(layout),
        shape_(model::attention_shape(config)),
        columns_(model::attention_columns(config)) {}

  size_t bytes() const { return bytes_; }

  Result<Tensor> embed() override { return keep(1, config_.width); }
  Result<Tensor> norm(const Tensor& x, int) override { return x; }
  Result<Tensor> linear(const Tensor& x, int weight, int) override {
    return keep(x.rows, layout_.parameters[weight].rows);
  }
  Result<Tensor> linear_onto(const Tensor& x, int weight, int, const Tensor&) override {
    return keep(x.rows, layout_.parameters[weight].rows);
  }
  Result<Tensor> norm_onto(const Tensor& x, int, const Tensor&) override { return keep(x.rows, x.columns); }
  Result<Tensor> head_norm(const Tensor& qkv, int, int) override { return keep(qkv.rows, qkv.columns); }
  Result<Tensor> attention(const Tensor& qkv, int) override {
    bytes_ += shape_.heads * sizeof(float);  // log-sums
    return keep(qkv.rows, columns_.out);
  }
  Result<Tensor> expand_latents(const Tensor& compressed, int layer) override {
    if (config_.latent.query_rank > 0) {
      const int queries = layout_.parameters[layout_.layers[layer].query_up].rows;
      bytes_ += sizeof(bf16) * static_cast<size_t>(config_.latent.query_rank + queries);
    }
    return keep(compressed.rows, columns_.keys + shape_.head_size);
  }
  Result<Tensor> project_values(const Tensor& gathered, int) override {
    return keep(gathered.rows, config_.heads * config_.latent.value);
  }
  Result<Tensor> swiglu(const Tensor& gate_up) override {
    return Tensor{nullptr, gate_up.rows, gate_up.columns / 2, 0};
  }
  Result<Tensor> dispatch(const Tensor& x, int, int) override {
    return Tensor{nullptr, x.rows * config_.experts.top_k, x.columns, 0};
  }
  Result<Tensor> grouped_linear(const Tensor& x, int weights) override {
    return keep(x.rows, layout_.parameters[weights].group_rows());
  }
  Result<Tensor> combine(const Tensor&, const Tensor& residual) override {
    return keep(residual.rows, residual.columns);
  }

 private:
  Tensor keep(int rows, int columns) {
    bytes_ += sizeof(bf16) * static_cast<size_t>(rows) * columns;
    return {nullptr, rows, columns, 0};
  }
  const model::ModelConfig& config_;
  const model::ParameterLayout& layout_;
  const kernels::AttentionShape shape_;
  const model::AttentionColumns columns_;
  size_t bytes_ = 0;
};

}  // namespace

Result<size_t> Tape::row_bytes_of(const model::ModelConfig& config) {
  const auto layout = TRY(model::parameter_layout(config));
  RowCounter counter(config, layout);
  TRY(model::hidden_states<bf16>(counter, layout));
  return counter.bytes();
}

template <typename T>
size_t Tape::TapeOps<T>::kept_bytes() const {
  size_t bytes = arena_.taken() * sizeof(T);
  for (const auto& sums : log_sums_) bytes += sums.size() * sizeof(float);
  for (const auto& latents : latents_) bytes += (latents.normed.size() + latents.queries.size()) * sizeof(T);
  return bytes;
}

// Counts all rows that have experts given in one layer, and so in all.
Tape::GivenRoutes given_routes_of(const TreeRoutes* routes) {
  Tape::GivenRoutes counts;
  if (routes == nullptr) return counts;
  for (size_t row = 0; row < routes->ids.size(); row += routes->shape.top_k) counts.given += routes->ids[row] >= 0;
  return counts;
}

template <typename T>
Tape::GivenRoutes Tape::TapeOps<T>::given_routes() const {
  GivenRoutes counts = given_routes_of(given_);
  for (size_t layer = 0; given_ != nullptr && layer < routes_used_; ++layer)
    counts.changed += std::count(routes_[layer].changed.begin(), routes_[layer].changed.end(), 1);
  return counts;
}

template size_t Tape::TapeOps<bf16>::kept_bytes() const;
template Tape::GivenRoutes Tape::TapeOps<bf16>::given_routes() const;
template Tape::GivenRoutes Tape::TapeOps<float>::given_routes() const;
template size_t Tape::TapeOps<float>::kept_bytes() const;

}  // namespace tandem::trainer
