// Mixtures of experts: routing, permutation to experts and back, and grouped products.
//
// A pair is a row at one of its experts: row * top_k + rank, rank 0 being the expert of the largest weight. Sorted by
// expert, pairs of one expert in order, each has a place; `places[pair]` says which, and the places of expert e are
// offsets[e] to offsets[e + 1]. No pair is dropped and there is no capacity limit. Sums have a fixed order: a row's
// result is a function of the row and the weights, independent of other rows.
//
// Offsets and places are read where the kernel runs. Thread safety: as gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/gemm.h"
#include "kernels/stream.h"

namespace tandem::kernels {

// p = softmax(logits) over all experts, or sigmoid of each logit by itself. Chosen are the largest logits, or the
// largest p + bias of sigmoids; ties go to the lowest expert, a NaN is below all else. Where experts lie in groups,
// only those of `top_k_groups` groups are looked at: of the groups whose two largest p + bias have the largest sums,
// ties to the lowest (DeepSeek-AI 2024). The bias is for the choice alone: weight = scale * p, or scale * p / (sum of
// the chosen p in order of rank) where `normalise` (of sigmoids, 1e-20 added). All fp32; sums over experts in 16 lanes
// and a fixed tree.
//
// A row whose experts are `given` takes those in that order, and has the weights that a choice of them would have.
enum class Score : uint8_t { kSoftmax, kSigmoid };
struct Route {
  const float* logits = nullptr;  // [rows][experts]
  int32_t* ids = nullptr;         // [rows][top_k]
  float* weights = nullptr;       // [rows][top_k]
  Score score = Score::kSoftmax;
  const float* bias = nullptr;  // [experts] or none; only with sigmoids
  float scale = 1;
  bool normalise = false;
  int rows = 0, experts = 0, top_k = 0;
  int groups = 1, top_k_groups = 1;  // equal parts of the experts, of two at least; more than one only with sigmoids
  const int32_t* given = nullptr;    // [rows][top_k] or none; -1 first: the row chooses
  uint8_t* changed = nullptr;        // [rows] or none: written where `given` is, 1 where the row would choose others
};
// kInvalid names the argument; `top_k` is 1 to the experts of the chosen groups. Given experts are distinct.
Status route(Stream& stream, const Route& arguments);

// Gradients reach the logits through the weights: softmax or sigmoid, and the division where `normalise`. The choice of
// experts has no gradient.
struct RouteBackward {
  const float* logits = nullptr;        // [rows][experts]
  const int32_t* ids = nullptr;         // [rows][top_k], as route gave them
  const float* weights = nullptr;       // [rows][top_k], the same
  const float* grad_weights = nullptr;  // [rows][top_k]
  bf16* grad_logits = nullptr;          // [rows][experts], written; what lies behind them up to the stride becomes zero
  size_t grad_stride = 0;
  Score score = Score::kSoftmax;
  float scale = 1;
  bool normalise = false;
  int rows = 0, experts = 0, top_k = 0;
};
Status route_backward(Stream& stream, const RouteBackward& arguments);

struct GroupByExpert {
  const int32_t* ids = nullptr;  // [rows][top_k]
  int32_t* offsets = nullptr;    // [experts + 1]
  int32_t* places = nullptr;     // [rows][top_k]
  int rows = 0, experts = 0, top_k = 0;
};
// kInvalid names an id outside [0, experts).
Status group_by_expert(Stream& stream, const GroupByExpert& arguments);

// out[place of the pair] = x[row of the pair].
template <typename T>
struct BasicPermute {
  const T* x = nullptr;             // [rows][width]
  const int32_t* places = nullptr;  // [rows][top_k]
  T* out = nullptr;                 // [rows * top_k][width]
  int rows = 0, top_k = 0, width = 0;
};
using Permute = BasicPermute<bf16>;
Status permute(Stream& stream, const Permute& arguments);
Status permute(Stream& stream, const BasicPermute<float>& arguments);

// grad_x[row] = bf16(sum over the row's pairs, in order of rank, of grad_out[place]).
struct PermuteBackward {
  const bf16* grad_out = nullptr;   // [rows * top_k][width]
  const int32_t* places = nullptr;  // [rows][top_k]
  bf16* grad_x = nullptr;           // [rows][width], written
  int rows = 0, top_k = 0, width = 0;
};
Status permute_backward(Stream& stream, const PermuteBackward& arguments);

// out[row] = bf16(residual[row] + sum over the row's pairs, in order of rank, of weight * y[place]), the sum by fused
// multiply-adds from zero.
template <typename T>
struct BasicCombine {
  const T* y = nullptr;             // [rows * top_k][width]
  const int32_t* places = nullptr;  // [rows][top_k]
  const float* weights = nullptr;   // [rows][top_k]
  const T* residual = nullptr;      // [rows][width]
  T* out = nullptr;                 // [rows][width]; may be the residual itself
  int rows = 0, top_k = 0, width = 0;
};
using Combine = BasicCombine<bf16>;
Status combine(Stream& stream, const Combine& arguments);
Status combine(Stream& stream, const BasicCombine<float>& arguments);

// grad_y[place] = bf16(weight * grad_out[row]), grad_weight = grad_out[row] . y[place] in 16 lanes and a fixed tree.
// The residual's gradient is grad_out.
struct CombineBackward {
  const bf16* y = nullptr;          // [rows * top_k][width]
  const int32_t* places = nullptr;  // [rows][top_k]
  const float* weights = nullptr;   // [rows][top_k]
  const bf16* grad_out = nullptr;   // [rows][width]
  bf16* grad_y = nullptr;           // [rows * top_k][width], written
  float* grad_weights = nullptr;    // [rows][top_k], written
  int rows = 0, top_k = 0, width = 0;
};
Status combine_backward(Stream& stream, const CombineBackward& arguments);

// out[i] = a[i] times the weight of the group that row i lies in: the bits that `gemm` gives with that weight alone.
template <typename T>
struct BasicGroupedGemm {
  const T* a = nullptr;  // [m][k], `a_stride` elements from row to row
  size_t a_stride = 0;
  const int32_t* offsets = nullptr;  // [groups + 1]: group g is rows offsets[g] to offsets[g + 1]; 0 first, m last
  RightSide<T> b;    // of each group packed_size(n, k) elements, or packed_codes_size(n, k) bytes of codes
  T* out = nullptr;  // [m][n], `out_stride` elements from row to row
  size_t out_stride = 0;
  int groups = 0, m = 0, n = 0, k = 0;  // k even
};
using GroupedGemm = BasicGroupedGemm<bf16>;
Status grouped_gemm(Stream& stream, const GroupedGemm& arguments);
Status grouped_gemm(Stream& stream, const BasicGroupedGemm<float>& arguments);

// bf16 elements that rows packed by group take.
size_t packed_groups_size(int columns, int rows, int groups);

// The rows of each group as `pack_transposed` packs them, an odd number as if followed by zeros. Group g begins
// packed_groups_size(columns, offsets[g], g) elements into `packed`.
struct PackGroups {
  const bf16* x = nullptr;           // [rows][columns]
  const int32_t* offsets = nullptr;  // [groups + 1]
  bf16* packed = nullptr;
  int groups = 0, rows = 0, columns = 0;
};
Status pack_groups(Stream& stream, const PackGroups& arguments);

// The weight gradient: out[g] += (rows of group g of a) transposed times (the same rows of b). The sum over a group's
// rows is the one that `gemm` gives for them alone.
struct KGroupedGemm {
  const bf16* a = nullptr;           // [rows][m], packed by pack_groups
  const bf16* b = nullptr;           // [rows][n], packed by pack_groups
  const int32_t* offsets = nullptr;  // [groups + 1]
  float* out = nullptr;              // [groups][m][n]
  int groups = 0, rows = 0, m = 0, n = 0;
};
Status k_grouped_gemm(Stream& stream, const KGroupedGemm& arguments);

}  // namespace tandem::kernels
