// The transformer for inference on a device: each kind of intermediate has one buffer, as in forward.cpp. The host sees
// no result.
//
// Thread safety: none; one executor's. Weights, pages and the batch must live until the stream has passed.
#pragma once

#include <array>

#include "model/device/device_layer_ops.h"
#include "model/routes.h"

namespace tandem::model {

// A batch in a device's memory.
struct DeviceBatch {
  int rows = 0;
  kernels::OnDevice<int32_t>* tokens = nullptr;
  DevicePlaces places;
  bool routes = false;  // which experts the rows go to is wanted
};

template <typename T>
class DeviceOps final : public DeviceLayerOps<T> {
 public:
  using Element = kernels::OnDevice<T>;
  using Tensor = BasicTensor<Element>;

  static Result<DeviceOps> create(kernels::DeviceStream& stream, const Weights& like, int max_positions);

  // The states after the final norm, valid until the next run.
  Result<Tensor> run(const DeviceWeights& weights, const DevicePages<T>& pages, const DeviceBatch& batch);
  // Where a batch wanted them: the experts of its rows, [layers with experts][rows][top_k]; valid until the next run.
  kernels::OnDevice<int32_t>* recorded_routes() { return recorded_.data(); }
  // Rows of that, one behind the other; valid until the next.
  Result<Element*> gather(const Tensor& states, kernels::OnDevice<int32_t>* rows, int count);

  Result<Tensor> embed() override;
  Result<Tensor> norm(const Tensor& x, int weight) override;
  Result<Tensor> linear(const Tensor& x, int weight, int bias) override;
  Result<Tensor> linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) override;
  Result<Tensor> norm_onto(const Tensor& x, int weight, const Tensor& residual) override;
  Result<Tensor> head_norm(const Tensor& qkv, int query_weight, int key_weight) override;
  Result<Tensor> attention(const Tensor& qkv, int layer) override;
  Result<Tensor> expand_latents(const Tensor& compressed, int layer) override;
  Result<Tensor> project_values(const Tensor& gathered, int layer) override;
  Result<Tensor> swiglu(const Tensor& gate_up) override;
  Result<Tensor> dispatch(const Tensor& x, int router, int router_bias) override;
  Result<Tensor> grouped_linear(const Tensor& x, int weights) override;
  Result<Tensor> combine(const Tensor& y, const Tensor& residual) override;

 private:
  enum Buffer { kResidual, kNormed, kDispatched, kExpanded, kWide, kGathered, kBuffers };
  using Base = DeviceLayerOps<T>;
  using Base::Base, Base::config_, Base::layout_, Base::shape_, Base::columns_, Base::stream_, Base::weights_;

  Result<Tensor> tensor(Buffer buffer, int columns, int rows);

  std::array<kernels::DeviceBuffer<T>, kBuffers> buffers_;
  DeviceRoutes routes_;  // of the layer at hand
  DeviceLatentQueries<T> latents_;
  const RouteShape route_shape_ = route_shape(config_);
  kernels::DeviceBuffer<int32_t> recorded_;
  size_t recorded_layers_ = 0;  // of the batch at hand
  const DevicePages<T>* pages_ = nullptr;
  DeviceBatch batch_;
};

}  // namespace tandem::model
