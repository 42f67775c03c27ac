// Which experts the rows of one layer go to, and products of rows that lie in that order.
//
// Engine and trainer call these same functions, so both route alike, in bf16 and in fp32. Thread safety: none; buffers
// are kept and grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/expert_routes.h"
#include "kernels/experts.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace tandem::model {

struct Routes {
  int rows = 0, experts = 0, top_k = 0;
  kernels::Score score = kernels::Score::kSoftmax;
  float scale = 1;
  bool normalise = false;
  int groups = 1, top_k_groups = 1;
  std::vector<float> logits, weights, bias;   // [rows][experts], [rows][top_k], [experts] or none
  std::vector<int32_t> ids, places, offsets;  // kernels/experts.h
  std::vector<uint8_t> changed;  // [rows], where experts were given: 1 where the router would choose others
};

// The experts of the rows of x by the router of a layer; those that are `given` ([rows][top_k], -1 first where a row
// has none; empty: none) are taken in place of the router's choice.
template <typename T>
Status choose(kernels::Stream& stream, const Weights& weights, int router, int router_bias, const BasicTensor<T>& x,
              Routes& routes, std::span<const int32_t> given = {});

// The shape of the model's recorded routes; layers is 0 for a model without experts.
RouteShape route_shape(const ModelConfig& config);

// Permutes the rows of x to their places: `out` is [rows * top_k][columns].
template <typename T>
Status send(kernels::Stream& stream, const Routes& routes, const BasicTensor<T>& x, const BasicTensor<T>& out);

// Each row of x, lying in its place, times its expert's matrix of the parameter.
template <typename T>
Status multiply_groups(kernels::Stream& stream, const Weights& weights, int parameter, const Routes& routes,
                       const BasicTensor<T>& x, const BasicTensor<T>& out);

// residual + the weighted sum over each row's experts.
template <typename T>
Status gather(kernels::Stream& stream, const Routes& routes, const BasicTensor<T>& y, const BasicTensor<T>& residual,
              const BasicTensor<T>& out);

}  // namespace tandem::model
