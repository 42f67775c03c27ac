#include "trainer/learn/tape.h"

#include <cstring>

#include "kernels/transformer_ops.h"
#include "model/head_norms.h"
#include "trainer/learn/device_tape.h"
#include "trainer/learn/tape_ops.h"

namespace tandem::trainer {

template <typename T>
Result<std::vector<float>> Tape::TapeOps<T>::forward(kernels::Stream& stream, const model::Weights& weights,
                                                     const TokenTree& tree, std::span<const TokenPick> picks,
                                                     const TreeRoutes* routes, float logit_scale,
                                                     std::span<const KeptTokens> kept) {
  this->begin(stream, weights);
  logit_scale_ = logit_scale;
  given_ = routes;
  tree_ = &tree;
  rows_ = static_cast<int>(tree.tokens.size());
  records_.clear();
  arena_.reset();
  log_sums_.clear();
  routes_used_ = 0;
  pages_.lay_out(tree.nodes);
  hidden_ = TRY(hidden_states(*this, layout()));
  return head(picks, kept);
}

template <typename T>
Result<std::vector<int32_t>> Tape::TapeOps<T>::argmax(std::span<const int> rows) {
  std::vector<float> log_sum(rows.size());
  std::vector<int32_t> tokens(rows.size());
  TRY(this->head_rows(gather(hidden_, rows), rows.size(), {.log_sum = log_sum.data(), .argmax = tokens.data()}, {},
                      {}));
  return tokens;
}

template <typename T>
Result<std::vector<float>> Tape::TapeOps<T>::states() {
  const size_t count = head_.rows.size() * static_cast<size_t>(config_.width);
  std::vector<float> states(count);
  if (count == 0) return states;
  const T* gathered = gather(hidden_, head_.rows);
  std::transform(gathered, gathered + count, states.begin(), [](T value) {
    if constexpr (std::is_same_v<T, float>)
      return value;
    else
      return kernels::to_float(value);
  });
  return states;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::embed() {
  Tensor x = record({.kind = kEmbed, .weight = layout().embedding}, rows_, config_.width);
  TRY(this->embed_rows(tree_->tokens, x));
  return x;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::norm(const Tensor& x, int weight) {
  const Tensor out = record({.kind = kNorm, .weight = weight, .in = x, .kept = false}, x.rows, x.columns);
  TRY(compute(records_.back(), x.data, out.data));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::linear(const Tensor& x, int weight, int bias) {
  const Tensor out =
      record({.kind = kLinear, .weight = weight, .bias = bias, .in = x}, x.rows, layout().parameters[weight].rows);
  TRY(multiply(x, weight, bias, nullptr, out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::linear_onto(const Tensor& x, int weight, int bias,
                                                            const Tensor& residual) {
  const Tensor out =
      record({.kind = kLinearOnto, .weight = weight, .bias = bias, .in = x}, x.rows, layout().parameters[weight].rows);
  TRY(multiply(x, weight, bias, residual.data, out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::norm_onto(const Tensor& x, int weight, const Tensor& residual) {
  const Tensor out = record({.kind = kNormOnto, .weight = weight, .in = x}, x.rows, x.columns);
  const size_t count = static_cast<size_t>(x.rows) * x.columns;
  T* normed = grown(scratch_, count);
  TRY(compute(records_.back(), x.data, normed));
  std::memcpy(out.data, residual.data, count * sizeof(T));
  TRY(kernels::add(*stream_, normed, count, out.data));
  return out;
}

// What went in is kept beside what came out: the norm's gradient needs it.
template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::head_norm(const Tensor& qkv, int query_weight, int key_weight) {
  const Tensor out = record({.kind = kHeadNorm, .weight = query_weight, .second_weight = key_weight, .in = qkv},
                            qkv.rows, qkv.columns);
  std::memcpy(out.data, qkv.data, static_cast<size_t>(qkv.rows) * qkv.columns * sizeof(T));
  TRY(model::norm_heads(*stream_, *weights_, query_weight, key_weight, out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::attention(const Tensor& qkv, int layer) {
  const size_t stride = static_cast<size_t>(qkv.columns);
  TRY(rotation_.turn(*stream_, qkv.data, stride, tree_->positions));
  log_sums_.resize(layer + 1);
  const Tensor out = record({.kind = kAttention, .layer = layer, .in = qkv}, rows_, columns_.out);
  TRY(pages_.attention(*stream_, model::attention_shape(config_, layer),
                       {.queries = qkv.data,
                        .keys = qkv.data + columns_.keys,
                        .values = qkv.data + columns_.values,
                        .stride = stride,
                        .out = out.data,
                        .out_stride = static_cast<size_t>(columns_.out),
                        .log_sum = grown(log_sums_[layer], static_cast<size_t>(rows_) * shape_.heads)}));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::expand_latents(const Tensor& compressed, int layer) {
  const Tensor out = record({.kind = kExpandLatents, .layer = layer, .in = compressed}, compressed.rows,
                            columns_.keys + shape_.head_size);
  latents_.resize(config_.layers);
  TRY(model::expand_latents(*stream_, *weights_, layer, compressed, activations_, latents_[layer], out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::project_values(const Tensor& gathered, int layer) {
  const Tensor out = record({.kind = kProjectValues, .layer = layer, .in = gathered}, gathered.rows,
                            config_.heads * config_.latent.value);
  TRY(model::project_values(*stream_, *weights_, layer, gathered, out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::swiglu(const Tensor& gate_up) {
  const Tensor out = record({.kind = kSwiglu, .in = gate_up, .kept = false}, gate_up.rows, gate_up.columns / 2);
  TRY(compute(records_.back(), gate_up.data, out.data));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::dispatch(const Tensor& x, int router, int router_bias) {
  const size_t place = routes_used_++;
  if (routes_.size() < routes_used_) routes_.emplace_back();
  TRY(model::choose(*stream_, *weights_, router, router_bias, x, routes_[place],
                    given_ != nullptr ? given_->layer(place) : std::span<const int32_t>()));
  const Tensor out = record({.kind = kDispatch, .weight = router, .routes = place, .in = x, .kept = false},
                            x.rows * routes_[place].top_k, x.columns);
  TRY(compute(records_.back(), x.data, out.data));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::grouped_linear(const Tensor& x, int weights) {
  const size_t place = routes_used_ - 1;
  const Tensor out = record({.kind = kGroupedLinear, .weight = weights, .routes = place, .in = x}, x.rows,
                            layout().parameters[weights].group_rows());
  TRY(model::multiply_groups(*stream_, *weights_, weights, routes_[place], TRY(multiplied_by(weights, x)), out));
  return out;
}

template <typename T>
Result<model::BasicTensor<T>> Tape::TapeOps<T>::combine(const Tensor& y, const Tensor& residual) {
  const size_t place = routes_used_ - 1;
  const Tensor out = record({.kind = kCombine, .routes = place, .in = y}, residual.rows, residual.columns);
  TRY(model::gather(*stream_, routes_[place], y, residual, out));
  return out;
}

template <typename T>
model::BasicTensor<T> Tape::TapeOps<T>::record(Record entry, int rows, int columns) {
  const size_t count = static_cast<size_t>(rows) * columns;
  entry.out = {entry.kept ? arena_.take(count) : grown(scratch_of(entry), count), rows, columns,
               static_cast<int>(records_.size())};
  records_.push_back(entry);
  return entry.out;
}

template <typename T>
Status Tape::TapeOps<T>::compute(const Record& record, const T* in, T* out) {
  if (record.kind == kNorm || record.kind == kNormOnto) {
    return this->norm_rows(record.in, in, record.weight, out);
  }
  if (record.kind == kDispatch) {
    Tensor x = record.in, y = record.out;
    x.data = const_cast<T*>(in);
    y.data = out;
    return model::send(*stream_, routes_[record.routes], x, y);
  }
  return this->gate_rows(record.in, in, out);
}

template <typename T>
Result<std::vector<float>> Tape::TapeOps<T>::head(std::span<const TokenPick> picks, std::span<const KeptTokens> kept) {
  head_ = TRY(HeadRows::of(picks, kept, config_.vocabulary));
  head_log_sum_.resize(head_.rows.size());
  head_scales_.assign(logit_scale_ == 1 ? 0 : head_.rows.size(), logit_scale_);
  std::vector<float> logprobs(picks.size());
  if (!picks.empty()) {
    TRY(this->head_rows(gather(hidden_, head_.rows), head_.rows.size(),
                        {.log_sum = head_log_sum_.data(),
                         .logit_scales = head_scales_.empty() ? nullptr : head_scales_.data(),
                         .kept = head_.kept.empty() ? nullptr : head_.kept.data()},
                        head_.picks, logprobs));
  }
  return logprobs;
}

template class Tape::TapeOps<bf16>;
template class Tape::TapeOps<float>;

Tape::Tape(const model::ModelConfig& config, int max_positions, model::WeightFormat format) {
  if (format == model::WeightFormat::kFloat32)
    pass_ = std::make_unique<TapeOps<float>>(config, max_positions);
  else
    pass_ = std::make_unique<TapeOps<bf16>>(config, max_positions);
}
Tape::Tape(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) {}
Tape::~Tape() = default;

Result<std::unique_ptr<Tape>> Tape::on_device(const kernels::Device& device, const model::Weights& like,
                                              int max_positions) {
  return std::unique_ptr<Tape>(new Tape(TRY(DevicePass::create(device, like, max_positions))));
}

Result<std::vector<float>> Tape::forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                         std::span<const TokenPick> picks, const TreeRoutes* routes, float logit_scale,
                                         std::span<const KeptTokens> kept) {
  if (!(logit_scale > 0)) return fail(Status::invalid("logits are to be multiplied by a number above 0"));
  if (routes != nullptr) {
    const RouteShape shape = model::route_shape(weights.config());
    if (!routes->shape.any() || routes->shape != shape || routes->ids.size() != tree.tokens.size() * shape.choices())
      return fail(Status::invalid("the routes to take are not of the model and the rows of the tree"));
  }
  return pass_->forward(stream, weights, tree, picks, routes, logit_scale, kept);
}
Tape::GivenRoutes Tape::given_routes() const { return pass_->given_routes(); }
Status Tape::backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                      std::vector<float>* entropies, std::span<const uint8_t> learned,
                      std::span<const float> grad_states) {
  pass_->add_to_states(grad_states);
  return pass_->backward(grad_logprobs, gradients, entropies, learned);
}
Result<std::vector<float>> Tape::states() { return pass_->states(); }
Result<std::vector<int32_t>> Tape::argmax(std::span<const int> rows) { return pass_->argmax(rows); }
std::unique_ptr<SlotMemory> Tape::slot_memory(size_t bytes) { return pass_->slot_memory(bytes); }
size_t Tape::kept_bytes() const { return pass_->kept_bytes(); }

}  // namespace tandem::trainer
