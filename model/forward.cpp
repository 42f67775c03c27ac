#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "kernels/transformer_ops.h"
#include "model/head_norms.h"
#include "model/latent.h"
#include "model/layer_ops.h"
#include "model/routes.h"

namespace tandem::model {

using kernels::bf16;

Result<KvPool> KvPool::create(const ModelConfig& config, int pages, WeightFormat format) {
  KvPool pool;
  pool.pages_ = pages;
  pool.keys_ = kernels::page_keys(attention_shape(config));
  pool.elements_ = kernels::page_elements(attention_shape(config));
  pool.page_bytes_ = page_bytes_of(config, format);
  try {
    pool.memory_ = Buffer<std::byte>(pool.page_bytes_ * pages);
  } catch (const std::bad_alloc&) {
    return fail(Status::exhausted(fmt::format("{} for {} pages of keys and values cannot be had",
                                              format_bytes(pool.page_bytes() * pages), pages)));
  }
  return pool;
}

size_t KvPool::page_bytes_of(const ModelConfig& config, WeightFormat format) {
  const size_t element = format == WeightFormat::kFloat32 ? sizeof(float) : sizeof(bf16);
  return static_cast<size_t>(config.layers) * kernels::page_elements(attention_shape(config)) * element;
}

template <typename T>
kernels::BasicKeyValuePage<T> KvPool::page(int page, int layer) const {
  std::byte* memory = const_cast<std::byte*>(memory_.data()) + page * page_bytes_;
  T* start = reinterpret_cast<T*>(memory) + static_cast<size_t>(layer) * elements_;
  return {start, start + keys_};
}

void KvPool::clear(int page) { std::memset(memory_.data() + page * page_bytes_, 0, page_bytes_); }

void KvPool::copy(int from, int to) {
  std::memcpy(memory_.data() + to * page_bytes_, memory_.data() + from * page_bytes_, page_bytes_);
}

// A pass in some number format.
class Forward::Pass {
 public:
  virtual ~Pass() = default;
  virtual int max_positions() const = 0;
  virtual Status run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const Batch& batch,
                     std::span<const AdaptedRows> adapted, std::vector<uint8_t>* routes) = 0;
  virtual Status head(std::span<const int> rows, const HeadOutputs& outputs, std::span<const kernels::TokenPick> picks,
                      std::span<float> logprobs) = 0;
  virtual std::vector<float> states(std::span<const int> rows) = 0;
};

// Each kind of intermediate has one buffer; the residual stream is updated in place.
template <typename T>
class Forward::InferenceOps final : public LayerOps<T>, public Pass {
 public:
  using Tensor = BasicTensor<T>;

  using LayerOps<T>::LayerOps;

  int max_positions() const override { return rotation_.max_positions(); }
  Status run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const Batch& batch,
             std::span<const AdaptedRows> adapted, std::vector<uint8_t>* routes) override {
    this->begin(stream, weights, adapted);
    pool_ = &pool;
    batch_ = &batch;
    recorded_ = routes;
    recorded_layers_ = 0;
    if (recorded_ != nullptr) recorded_->assign(batch.tokens.size() * route_shape_.row_bytes(), 0);
    states_ = TRY(hidden_states(*this, weights.layout()));
    return {};
  }
  Status head(std::span<const int> rows, const HeadOutputs& outputs, std::span<const kernels::TokenPick> picks,
              std::span<float> logprobs) override {
    return this->head_rows(this->gather(states_, rows), rows.size(), outputs, picks, logprobs);
  }
  std::vector<float> states(std::span<const int> rows) override {
    std::vector<float> states(rows.size() * static_cast<size_t>(config_.width));
    const T* const gathered = this->gather(states_, rows);
    std::transform(gathered, gathered + states.size(), states.begin(), [](T value) {
      if constexpr (std::is_same_v<T, float>)
        return value;
      else
        return kernels::to_float(value);
    });
    return states;
  }

  Result<Tensor> embed() override {
    Tensor x = tensor(kResidual, config_.width);
    TRY(this->embed_rows(batch_->tokens, x));
    return x;
  }
  Result<Tensor> norm(const Tensor& x, int weight) override {
    Tensor out = tensor(kNormed, x.columns);
    TRY(this->norm_rows(x, x.data, weight, out.data));
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
    TRY(norm_heads(*stream_, *weights_, query_weight, key_weight, qkv));
    return qkv;
  }
  Result<Tensor> attention(const Tensor& qkv, int layer) override {
    const size_t stride = static_cast<size_t>(qkv.columns);
    TRY(rotation_.turn(*stream_, qkv.data, stride, batch_->positions));
    pages_.clear();
    for (const auto& run : batch_->runs) {
      for (const int page : batch_->pages_of(run)) pages_.push_back(pool_->page<T>(page, layer));
    }
    runs_.clear();
    size_t first_page = 0;
    for (const auto& run : batch_->runs) {
      const auto pages = std::span<const kernels::BasicKeyValuePage<T>>(pages_).subspan(first_page, run.pages);
      first_page += run.pages;
      const T* start = qkv.data + run.row * stride;
      TRY(kernels::write_pages(*stream_, shape_, start + columns_.keys, stride, start + columns_.values, stride,
                               run.rows, run.position, pages));
      runs_.push_back({run.row, run.rows, run.position, pages});
    }
    Tensor out = tensor(kNormed, columns_.out);
    const std::span<const kernels::BasicQueryRun<T>> runs = runs_;
    TRY(kernels::attention(*stream_, attention_shape(config_, layer), qkv.data, stride, runs, out.data,
                           static_cast<size_t>(columns_.out)));
    return out;
  }
  Result<Tensor> expand_latents(const Tensor& compressed, int layer) override {
    const Tensor out = tensor(kExpanded, columns_.keys + shape_.head_size);
    TRY(model::expand_latents(*stream_, *weights_, layer, compressed, activations_, latents_, out));
    return out;
  }
  Result<Tensor> project_values(const Tensor& gathered, int layer) override {
    const Tensor out = tensor(kWide, config_.heads * config_.latent.value);
    TRY(model::project_values(*stream_, *weights_, layer, gathered, out));
    return out;
  }
  Result<Tensor> swiglu(const Tensor& gate_up) override {
    Tensor out = tensor(kNormed, gate_up.columns / 2, gate_up.rows);
    TRY(this->gate_rows(gate_up, gate_up.data, out.data));
    return out;
  }
  Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) override {
    TRY(choose(*stream_, *weights_, router, router_bias, x, routes_));
    if (recorded_ != nullptr) record_routes();
    Tensor out = tensor(kDispatched, x.columns, x.rows * routes_.top_k);
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
  enum Buffer { kResidual, kNormed, kDispatched, kExpanded, kWide, kBuffers };

  using LayerOps<T>::config_, LayerOps<T>::shape_, LayerOps<T>::columns_, LayerOps<T>::rotation_,
      LayerOps<T>::activations_, LayerOps<T>::stream_, LayerOps<T>::weights_, LayerOps<T>::layout,
      LayerOps<T>::multiply, LayerOps<T>::multiplied_by;

  Tensor tensor(Buffer buffer, int columns) { return tensor(buffer, columns, static_cast<int>(batch_->tokens.size())); }
  Tensor tensor(Buffer buffer, int columns, int rows) {
    auto& memory = buffers_[buffer];
    if (memory.size() < static_cast<size_t>(rows) * columns) memory.resize(static_cast<size_t>(rows) * columns);
    return {memory.data(), rows, columns, buffer};
  }
  // Records the routes of the layer at hand.
  void record_routes() {
    const size_t layer = recorded_layers_++, top_k = route_shape_.top_k, width = route_shape_.row_bytes();
    for (size_t row = 0; row < static_cast<size_t>(routes_.rows); ++row) {
      const auto to = std::span(*recorded_).subspan(row * width, width);
      for (size_t rank = 0; rank < top_k; ++rank)
        route_shape_.set(to, layer * top_k + rank, static_cast<uint32_t>(routes_.ids[row * top_k + rank]));
    }
  }
  const RouteShape route_shape_ = route_shape(config_);
  std::vector<uint8_t>* recorded_ = nullptr;  // routes of the pass at hand
  size_t recorded_layers_ = 0;
  std::array<std::vector<T>, kBuffers> buffers_;
  Tensor states_;  // of the last pass
  std::vector<kernels::BasicKeyValuePage<T>> pages_;
  std::vector<kernels::BasicQueryRun<T>> runs_;
  Routes routes_;             // of the layer at hand
  LatentQueries<T> latents_;  // the same
  KvPool* pool_ = nullptr;
  const Batch* batch_ = nullptr;
};

Forward::Forward(const ModelConfig& config, int max_positions, WeightFormat format) {
  if (format == WeightFormat::kFloat32)
    pass_ = std::make_unique<InferenceOps<float>>(config, max_positions);
  else
    pass_ = std::make_unique<InferenceOps<bf16>>(config, max_positions);
}
Forward::~Forward() = default;
Forward::Forward(Forward&&) noexcept = default;

int Forward::max_positions() const { return pass_->max_positions(); }

Status Forward::run(kernels::Stream& stream, const Weights& weights, KvPool& pool, const Batch& batch,
                    std::span<const AdaptedRows> adapted, std::vector<uint8_t>* routes) {
  return pass_->run(stream, weights, pool, batch, adapted, routes);
}

Status Forward::head(std::span<const int> rows, const HeadOutputs& outputs, std::span<const kernels::TokenPick> picks,
                     std::span<float> logprobs) {
  return pass_->head(rows, outputs, picks, logprobs);
}

std::vector<float> Forward::states(std::span<const int> rows) { return pass_->states(rows); }

}  // namespace tandem::model
