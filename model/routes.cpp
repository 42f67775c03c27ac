#include "model/routes.h"

#include "model/panels.h"

namespace tandem::model {

template <typename T>
Status choose(kernels::Stream& stream, const Weights& weights, int router, int router_bias, const BasicTensor<T>& x,
              Routes& routes, std::span<const int32_t> given) {
  const ExpertsConfig& experts = weights.config().experts;
  routes.rows = x.rows;
  routes.experts = experts.count;
  routes.top_k = experts.top_k;
  routes.score = experts.sigmoid ? kernels::Score::kSigmoid : kernels::Score::kSoftmax;
  routes.scale = static_cast<float>(experts.scale);
  routes.normalise = experts.normalise;
  routes.groups = experts.groups;
  routes.top_k_groups = experts.top_k_groups;
  if (router_bias >= 0) routes.bias = weights.split_values(router_bias);
  const size_t pairs = static_cast<size_t>(x.rows) * experts.top_k;
  if (!given.empty() && given.size() != pairs)
    return Status::internal("the experts that are given are not of these rows");
  routes.changed.assign(given.empty() ? 0 : static_cast<size_t>(x.rows), 0);
  routes.logits.resize(static_cast<size_t>(x.rows) * experts.count);
  routes.weights.resize(pairs);
  routes.ids.resize(pairs);
  routes.places.resize(pairs);
  routes.offsets.resize(experts.count + 1);
  TRY(kernels::gemm(stream, {.a = x.data,
                             .a_stride = static_cast<size_t>(x.columns),
                             .b = Panels(weights).packed<T>(router),
                             .out_float = routes.logits.data(),
                             .out_stride = static_cast<size_t>(experts.count),
                             .m = x.rows,
                             .n = experts.count,
                             .k = x.columns}));
  TRY(kernels::route(stream, {.logits = routes.logits.data(),
                              .ids = routes.ids.data(),
                              .weights = routes.weights.data(),
                              .score = routes.score,
                              .bias = router_bias >= 0 ? routes.bias.data() : nullptr,
                              .scale = routes.scale,
                              .normalise = routes.normalise,
                              .rows = x.rows,
                              .experts = experts.count,
                              .top_k = experts.top_k,
                              .groups = routes.groups,
                              .top_k_groups = routes.top_k_groups,
                              .given = given.empty() ? nullptr : given.data(),
                              .changed = given.empty() ? nullptr : routes.changed.data()}));
  return kernels::group_by_expert(stream, {.ids = routes.ids.data(),
                                           .offsets = routes.offsets.data(),
                                           .places = routes.places.data(),
                                           .rows = x.rows,
                                           .experts = experts.count,
                                           .top_k = experts.top_k});
}

RouteShape route_shape(const ModelConfig& config) {
  RouteShape shape;
  for (int layer = 0; layer < config.layers; ++layer) shape.layers += config.has_experts(layer) ? 1 : 0;
  if (!shape.any()) return {};
  shape.top_k = static_cast<uint32_t>(config.experts.top_k);
  shape.experts = static_cast<uint32_t>(config.experts.count);
  return shape;
}

template <typename T>
Status send(kernels::Stream& stream, const Routes& routes, const BasicTensor<T>& x, const BasicTensor<T>& out) {
  return kernels::permute(stream, {.x = x.data,
                                   .places = routes.places.data(),
                                   .out = out.data,
                                   .rows = routes.rows,
                                   .top_k = routes.top_k,
                                   .width = x.columns});
}

template <typename T>
Status multiply_groups(kernels::Stream& stream, const Weights& weights, int parameter, const Routes& routes,
                       const BasicTensor<T>& x, const BasicTensor<T>& out) {
  return kernels::grouped_gemm(stream, {.a = x.data,
                                        .a_stride = static_cast<size_t>(x.columns),
                                        .offsets = routes.offsets.data(),
                                        .b = Panels(weights).packed<T>(parameter),
                                        .out = out.data,
                                        .out_stride = static_cast<size_t>(out.columns),
                                        .groups = routes.experts,
                                        .m = x.rows,
                                        .n = out.columns,
                                        .k = x.columns});
}

template <typename T>
Status gather(kernels::Stream& stream, const Routes& routes, const BasicTensor<T>& y, const BasicTensor<T>& residual,
              const BasicTensor<T>& out) {
  return kernels::combine(stream, {.y = y.data,
                                   .places = routes.places.data(),
                                   .weights = routes.weights.data(),
                                   .residual = residual.data,
                                   .out = out.data,
                                   .rows = routes.rows,
                                   .top_k = routes.top_k,
                                   .width = y.columns});
}

template Status choose(kernels::Stream&, const Weights&, int, int, const BasicTensor<kernels::bf16>&, Routes&,
                       std::span<const int32_t>);
template Status choose(kernels::Stream&, const Weights&, int, int, const BasicTensor<float>&, Routes&,
                       std::span<const int32_t>);
template Status send(kernels::Stream&, const Routes&, const BasicTensor<kernels::bf16>&,
                     const BasicTensor<kernels::bf16>&);
template Status send(kernels::Stream&, const Routes&, const BasicTensor<float>&, const BasicTensor<float>&);
template Status multiply_groups(kernels::Stream&, const Weights&, int, const Routes&, const BasicTensor<kernels::bf16>&,
                                const BasicTensor<kernels::bf16>&);
template Status multiply_groups(kernels::Stream&, const Weights&, int, const Routes&, const BasicTensor<float>&,
                                const BasicTensor<float>&);
template Status gather(kernels::Stream&, const Routes&, const BasicTensor<kernels::bf16>&,
                       const BasicTensor<kernels::bf16>&, const BasicTensor<kernels::bf16>&);
template Status gather(kernels::Stream&, const Routes&, const BasicTensor<float>&, const BasicTensor<float>&,
                       const BasicTensor<float>&);

}  // namespace tandem::model
