#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "kernels/transformer_ops.h"
#include "model/rotation.h"
#include "model/routes.h"

namespace tandem::model {

using kernels::bf16;

Result<KvPool> KvPool::create(const ModelConfig& config, int pages) {
  KvPool pool;
  pool.pages_ = pages;
  pool.layers_ = static_cast<size_t>(config.layers);
  pool.elements_ = kernels::page_elements(attention_shape(config));
  try {
    pool.memory_ = Buffer<bf16>(pool.elements_ * 2 * pool.layers_ * pages);
  } catch (const std::bad_alloc&) {
    return fail(Status::exhausted(fmt::format("{} for {} pages of keys and values cannot be had",
                                              format_bytes(pool.page_bytes() * pages), pages)));
  }
  return pool;
}

kernels::KeyValuePage KvPool::page(int page, int layer) const {
  bf16* start = const_cast<bf16*>(memory_.data()) + (static_cast<size_t>(page) * layers_ + layer) * 2 * elements_;
  return {start, start + elements_};
}

void KvPool::clear(int page) {
  const size_t size = layers_ * 2 * elements_;
  std::fill_n(memory_.begin() + page * size, size, bf16{});
}

void KvPool::copy(int from, int to) {
  const size_t size = layers_ * 2 * elements_;
  std::copy_n(memory_.begin() + from * size, size, memory_.begin() + to * size);
}

void ForwardBatch::add(std::span<const int32_t> run_tokens, int position, std::span<const int> pages) {
  runs.push_back({static_cast<int>(tokens.size()), static_cast<int>(run_tokens.size()), position, pages});
  for (size_t i = 0; i < run_tokens.size(); ++i) {
    tokens.push_back(run_tokens[i]);
    positions.push_back(position + static_cast<int>(i));
  }
}

// Each kind of intermediate has one buffer; the residual stream is updated in place.
class Forward::InferenceOps final : public Ops {
 public:
  InferenceOps(const ModelConfig& config, int max_positions)
      : config_(config), shape_(attention_shape(config)), rotation_(config, max_positions) {}

  void begin(kernels::Stream& stream, const Weights& weights, KvPool& pool, const ForwardBatch& batch) {
    stream_ = &stream;
    weights_ = &weights;
    pool_ = &pool;
    batch_ = &batch;
  }
  int max_positions() const { return rotation_.max_positions(); }

  Result<Tensor> embed() override {
    Tensor x = tensor(kResidual, config_.width);
    TRY(kernels::embed(*stream_, weights_->values(layout().embedding), config_.vocabulary, config_.width,
                       batch_->tokens, x.data));
    return x;
  }
  Result<Tensor> norm(const Tensor& x, int weight) override {
    Tensor out = tensor(kNormed, x.columns);
    TRY(kernels::rms_norm(*stream_, x.data, weights_->values(weight), static_cast<float>(config_.norm_epsilon), x.rows,
                          x.columns, out.data));
    return out;
  }
  Result<Tensor> linear(const Tensor& x, int weight, int bias) override {
    Tensor out = tensor(kWide, layout().parameters[weight].rows);
    TRY(multiply(x, weight, bias, nullptr, out));
    return out;
  }
  Result<Tensor> linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) override {
    TRY(multiply(x, weight, bias, residual.data, residual));
    return residual;
  }
  Result<Tensor> norm_onto(const Tensor& x, int weight, const Tensor& residual) override {
    const Tensor normed = TRY(norm(x, weight));
    TRY(kernels::add(*stream_, normed.data, static_cast<size_t>(x.rows) * x.columns, residual.data));
    return residual;
  }
  Result<Tensor> head_norm(const Tensor& qkv, int query_weight, int key_weight) override {
    const int query = shape_.heads * shape_.head_size;
    for (const auto& [start, weight, heads] :
         {std::tuple{0, query_weight, shape_.heads}, std::tuple{query, key_weight, shape_.kv_heads}}) {
      TRY(kernels::head_norm(*stream_, {.x = qkv.data + start,
                                        .stride = static_cast<size_t>(qkv.columns),
                                        .weight = weights_->values(weight),
                                        .epsilon = static_cast<float>(config_.norm_epsilon),
                                        .rows = qkv.rows,
                                        .heads = heads,
                                        .head_size = shape_.head_size}));
    }
    return qkv;
  }
  Result<Tensor> attention(const Tensor& qkv, int layer) override {
    const size_t stride = static_cast<size_t>(qkv.columns);
    const int query = shape_.heads * shape_.head_size, key = shape_.kv_heads * shape_.head_size;
    TRY(rotation_.turn(*stream_, qkv.data, stride, batch_->positions));
    pages_.clear();
    for (const auto& run : batch_->runs) {
      for (const int page : run.pages) pages_.push_back(pool_->page(page, layer));
    }
    runs_.clear();
    size_t first_page = 0;
    for (const auto& run : batch_->runs) {
      const auto pages = std::span(pages_).subspan(first_page, run.pages.size());
      first_page += run.pages.size();
      const bf16* start = qkv.data + run.row * stride;
      TRY(kernels::write_pages(*stream_, shape_, start + query, stride, start + query + key, stride, run.rows,
                               run.position, pages));
      runs_.push_back({run.row, run.rows, run.position, pages});
    }
    Tensor out = tensor(kNormed, query);
    TRY(kernels::attention(*stream_, attention_shape(config_, layer), qkv.data, stride, runs_, out.data,
                           static_cast<size_t>(query)));
    return out;
  }
  Result<Tensor> swiglu(const Tensor& gate_up) override {
    Tensor out = tensor(kNormed, gate_up.columns / 2, gate_up.rows);
    TRY(kernels::swiglu(*stream_, gate_up.data, gate_up.rows, gate_up.columns / 2, out.data));
    return out;
  }
  Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) override {
    TRY(choose(*stream_, *weights_, router, router_bias, x, routes_));
    Tensor out = tensor(kDispatched, x.columns, x.rows * routes_.chosen);
    TRY(send(*stream_, routes_, x, out));
    return out;
  }
  Result<Tensor> grouped_linear(const Tensor& x, int weights) override {
    Tensor out = tensor(kWide, layout().parameters[weights].group_rows(), x.rows);
    TRY(multiply_groups(*stream_, *weights_, weights, routes_, TRY(multiplied_by(weights, x)), out));
    return out;
  }
  Result<Tensor> combine(const Tensor& y, const Tensor& residual) override {
    TRY(gather(*stream_, routes_, y, residual, residual));
    return residual;
  }

 private:
  enum Buffer { kResidual, kNormed, kDispatched, kWide, kBuffers };

  const ParameterLayout& layout() const { return weights_->layout(); }
  Tensor tensor(Buffer buffer, int columns) { return tensor(buffer, columns, static_cast<int>(batch_->tokens.size())); }
  Tensor tensor(Buffer buffer, int columns, int rows) {
    auto& memory = buffers_[buffer];
    if (memory.size() < static_cast<size_t>(rows) * columns) memory.resize(static_cast<size_t>(rows) * columns);
    return {memory.data(), rows, columns, buffer};
  }
  // Rows as the products with a parameter see them.
  Result<Tensor> multiplied_by(int weight, const Tensor& x) {
    Tensor seen = x;
    seen.data =
        const_cast<bf16*>(TRY(activations_.of(*stream_, weights_->format_of(weight), x.data, x.rows, x.columns)));
    return seen;
  }
  Status multiply(const Tensor& x, int weight, int bias, const bf16* residual, const Tensor& out) {
    return kernels::gemm(*stream_, {.a = TRY(multiplied_by(weight, x)).data,
                                    .a_stride = static_cast<size_t>(x.columns),
                                    .b = weights_->packed(weight),
                                    .bias = bias < 0 ? nullptr : weights_->values(bias),
                                    .residual = residual,
                                    .out_bf16 = out.data,
                                    .out_stride = static_cast<size_t>(out.columns),
                                    .m = x.rows,
                                    .n = out.columns,
                                    .k = x.columns});
  }

  const ModelConfig config_;
  const kernels::AttentionShape shape_;
  const Rotation rotation_;
  std::array<std::vector<bf16>, kBuffers> buffers_;
  QuantizedActivations activations_;
  std::vector<kernels::KeyValuePage> pages_;
  std::vector<kernels::QueryRun> runs_;
  Routes routes_;  // of the layer at hand
  kernels::Stream* stream_ = nullptr;
  const Weights* weights_ = nullptr;
  KvPool* pool_ = nullptr;
  const ForwardBatch* batch_ = nullptr;
};

Forward::Forward(const ModelConfig& config, int max_positions)
    : ops_(std::make_unique<InferenceOps>(config, max_positions)) {}
Forward::~Forward() = default;
Forward::Forward(Forward&&) noexcept = default;

int Forward::max_positions() const { return ops_->max_positions(); }

Result<Tensor> Forward::run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const ForwardBatch& batch) {
  ops_->begin(stream, weights, pool, batch);
  return hidden_states(*ops_, weights.layout());
}

}  // namespace tandem::model
