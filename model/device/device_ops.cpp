#include "model/device/device_ops.h"

namespace tandem::model {

using kernels::DeviceStream, kernels::OnDevice;

template <typename T>
Result<DeviceOps<T>> DeviceOps<T>::create(DeviceStream& stream, const Weights& like, int max_positions) {
  DeviceOps ops(stream, like, max_positions);
  TRY(ops.prepare());
  return ops;
}

template <typename T>
auto DeviceOps<T>::tensor(Buffer buffer, int columns, int rows) -> Result<Tensor> {
  return Tensor{TRY(grown(*stream_, buffers_[buffer], static_cast<size_t>(rows) * columns)), rows, columns, buffer};
}

template <typename T>
auto DeviceOps<T>::run(const DeviceWeights& weights, const DevicePages<T>& pages, const DeviceBatch& batch)
    -> Result<Tensor> {
  this->begin(weights);
  pages_ = &pages;
  batch_ = batch;
  recorded_layers_ = 0;
  if (batch.routes) TRY(grown(*stream_, recorded_, route_shape_.choices() * static_cast<size_t>(batch.rows), "routes"));
  return hidden_states(*this, layout_);
}

template <typename T>
auto DeviceOps<T>::gather(const Tensor& states, OnDevice<int32_t>* rows, int count) -> Result<Element*> {
  const Tensor out = TRY(tensor(kGathered, states.columns, count));
  TRY(this->pick_rows(states, rows, out));
  return out.data;
}

template <typename T>
auto DeviceOps<T>::embed() -> Result<Tensor> {
  const Tensor x = TRY(tensor(kResidual, config_.width, batch_.rows));
  TRY(this->embed_rows(batch_.tokens, x));
  return x;
}

template <typename T>
auto DeviceOps<T>::norm(const Tensor& x, int weight) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kNormed, x.columns, x.rows));
  TRY(this->norm_rows(x, x.data, weight, out.data));
  return out;
}

template <typename T>
auto DeviceOps<T>::linear(const Tensor& x, int weight, int bias) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kWide, layout_.parameters[weight].rows, x.rows));
  TRY(this->multiply(x, weight, bias, nullptr, out));
  return out;
}

template <typename T>
auto DeviceOps<T>::linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) -> Result<Tensor> {
  TRY(this->multiply(x, weight, bias, residual.data, residual));
  return residual;
}

template <typename T>
auto DeviceOps<T>::norm_onto(const Tensor& x, int weight, const Tensor& residual) -> Result<Tensor> {
  const Tensor normed = TRY(norm(x, weight));
  TRY(this->add(residual.data, normed.data, static_cast<size_t>(x.rows) * x.columns));
  return residual;
}

template <typename T>
auto DeviceOps<T>::head_norm(const Tensor& qkv, int query_weight, int key_weight) -> Result<Tensor> {
  TRY(this->norm_heads(qkv, query_weight, key_weight));
  return qkv;
}

template <typename T>
auto DeviceOps<T>::attention(const Tensor& qkv, int layer) -> Result<Tensor> {
  TRY(this->turn(qkv.data, qkv.columns, batch_.places.positions, qkv.rows));
  TRY(this->write_pages(*pages_, layer, qkv.data, qkv.columns, qkv.rows, batch_.places));
  const Tensor out = TRY(tensor(kNormed, columns_.out, qkv.rows));
  TRY(this->attend(*pages_, layer, layer, qkv, batch_.places, out));
  return out;
}

template <typename T>
auto DeviceOps<T>::expand_latents(const Tensor& compressed, int layer) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kExpanded, columns_.keys + shape_.head_size, compressed.rows));
  TRY(this->expand(compressed, layer, latents_, out));
  return out;
}

template <typename T>
auto DeviceOps<T>::project_values(const Tensor& gathered, int layer) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kWide, config_.heads * config_.latent.value, gathered.rows));
  TRY(this->project(gathered, layer, out));
  return out;
}

template <typename T>
auto DeviceOps<T>::swiglu(const Tensor& gate_up) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kNormed, gate_up.columns / 2, gate_up.rows));
  TRY(this->gate_rows(gate_up, gate_up.data, out.data));
  return out;
}

template <typename T>
auto DeviceOps<T>::dispatch(const Tensor& x, int router, int router_bias) -> Result<Tensor> {
  TRY(this->choose(x, router, router_bias, routes_));
  if (batch_.routes) {
    const size_t pairs = static_cast<size_t>(x.rows) * route_shape_.top_k;
    TRY(stream_->copy(kernels::beyond(recorded_.data(), recorded_layers_++ * pairs), routes_.ids.data(), pairs));
  }
  const Tensor out = TRY(tensor(kDispatched, x.columns, x.rows * config_.experts.top_k));
  TRY(this->send(routes_, x, x.data, out.data));
  return out;
}

template <typename T>
auto DeviceOps<T>::grouped_linear(const Tensor& x, int weight) -> Result<Tensor> {
  const Tensor out = TRY(tensor(kWide, layout_.parameters[weight].group_rows(), x.rows));
  TRY(this->multiply_groups(routes_, weight, x, out));
  return out;
}

template <typename T>
auto DeviceOps<T>::combine(const Tensor& y, const Tensor& residual) -> Result<Tensor> {
  TRY(this->gather_routes(routes_, y, residual, residual));
  return residual;
}

template class DeviceOps<kernels::bf16>;
template class DeviceOps<float>;

}  // namespace tandem::model
