#include "model/routes.h"

namespace tandem::model {

Status choose(kernels::Stream& stream, const Weights& weights, int router, int router_bias, const Tensor& x,
              Routes& routes) {
  const ExpertsConfig& experts = weights.config().experts;
  routes.rows = x.rows;
  routes.experts = experts.count;
  routes.chosen = experts.chosen;
  routes.score = experts.sigmoid ? kernels::Score::kSigmoid : kernels::Score::kSoftmax;
  routes.scale = static_cast<float>(experts.scale);
  routes.normalise = experts.normalise;
  if (router_bias >= 0) routes.bias = weights.split_values(router_bias);
  const size_t pairs = static_cast<size_t>(x.rows) * experts.chosen;
  routes.logits.resize(static_cast<size_t>(x.rows) * experts.count);
  routes.weights.resize(pairs);
  routes.ids.resize(pairs);
  routes.places.resize(pairs);
  routes.offsets.resize(experts.count + 1);
  TRY(kernels::gemm(stream, {.a = x.data,
                             .a_stride = static_cast<size_t>(x.columns),
                             .b = weights.packed(router),
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
                              .chosen = experts.chosen}));
  return kernels::group_by_expert(stream, {.ids = routes.ids.data(),
                                           .offsets = routes.offsets.data(),
                                           .places = routes.places.data(),
                                           .rows = x.rows,
                                           .experts = experts.count,
                                           .chosen = experts.chosen});
}

Status send(kernels::Stream& stream, const Routes& routes, const Tensor& x, const Tensor& out) {
  return kernels::permute(stream, {.x = x.data,
                                   .places = routes.places.data(),
                                   .out = out.data,
                                   .rows = routes.rows,
                                   .chosen = routes.chosen,
                                   .width = x.columns});
}

Status multiply_groups(kernels::Stream& stream, const Weights& weights, int parameter, const Routes& routes,
                       const Tensor& x, const Tensor& out) {
  return kernels::grouped_gemm(stream, {.a = x.data,
                                        .a_stride = static_cast<size_t>(x.columns),
                                        .offsets = routes.offsets.data(),
                                        .b = weights.packed(parameter),
                                        .out = out.data,
                                        .out_stride = static_cast<size_t>(out.columns),
                                        .groups = routes.experts,
                                        .m = x.rows,
                                        .n = out.columns,
                                        .k = x.columns});
}

Status gather(kernels::Stream& stream, const Routes& routes, const Tensor& y, const Tensor& residual,
              const Tensor& out) {
  return kernels::combine(stream, {.y = y.data,
                                   .places = routes.places.data(),
                                   .weights = routes.weights.data(),
                                   .residual = residual.data,
                                   .out = out.data,
                                   .rows = routes.rows,
                                   .chosen = routes.chosen,
                                   .width = y.columns});
}

}  // namespace tandem::model
