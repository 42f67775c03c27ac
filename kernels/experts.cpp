// The public functions of mixtures of experts: arguments checked, then handed to the instruction set of the stream.
#include "kernels/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/argument_check.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

namespace {

Check& check_top_k(Check& check, int rows, int top_k) {
  return check.positive("rows", rows)
      .positive("top_k", top_k)
      .positive("rows * top_k", static_cast<int64_t>(rows) * top_k);
}

Status check_ids(const char* operation, const int32_t* ids, int rows, int top_k, int experts) {
  for (int64_t pair = 0; pair < static_cast<int64_t>(rows) * top_k; ++pair) {
    if (ids[pair] < 0 || ids[pair] >= experts) {
      return Status::invalid(fmt::format("{}: expert {} at row {} is outside the {} there are", operation, ids[pair],
                                         pair / top_k, experts));
    }
  }
  return {};
}

// Checks rows that have experts given.
Status check_given(const Route& r) {
  for (int64_t row = 0; row < r.rows; ++row) {
    const int32_t* const ids = r.given + row * r.top_k;
    if (ids[0] == -1) continue;
    for (int rank = 0; rank < r.top_k; ++rank) {
      if (ids[rank] < 0 || ids[rank] >= r.experts || std::find(ids, ids + rank, ids[rank]) != ids + rank)
        return Status::invalid(
            fmt::format("route: row {} is given expert {} as number {}, expected {} of the {} there "
                        "are, each once",
                        row, ids[rank], rank, r.top_k, r.experts));
    }
  }
  return {};
}

Status check_places(const char* operation, const int32_t* places, int rows, int top_k) {
  const int64_t pairs = static_cast<int64_t>(rows) * top_k;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (places[pair] < 0 || places[pair] >= pairs) {
      return Status::invalid(fmt::format("{}: place {} of row {} is outside the {} there are", operation, places[pair],
                                         pair / top_k, pairs));
    }
  }
  return {};
}

Status check_offsets(const char* operation, const int32_t* offsets, int groups, int rows) {
  for (int group = 0; group < groups; ++group) {
    if (offsets[group + 1] < offsets[group]) {
      return Status::invalid(fmt::format("{}: offsets[{}] is {}, below the {} before it", operation, group + 1,
                                         offsets[group + 1], offsets[group]));
    }
  }
  if (offsets[0] != 0 || offsets[groups] != rows) {
    return Status::invalid(fmt::format("{}: offsets go from {} to {}, expected from 0 to the {} rows", operation,
                                       offsets[0], offsets[groups], rows));
  }
  return {};
}

}  // namespace

Status route(Stream& stream, const Route& r) {
  TRY(Check{"route"}
          .given("logits", r.logits)
          .given("ids", r.ids)
          .given("weights", r.weights)
          .positive("rows", r.rows)
          .positive("experts", r.experts)
          .that(r.top_k >= 1 && r.top_k <= r.experts, "top_k must be from 1 to experts")
          .that(r.bias == nullptr || r.score == Score::kSigmoid, "a bias goes with sigmoids")
          .that(r.groups >= 1 && r.experts % r.groups == 0, "experts must be a multiple of groups")
          .that(r.groups == 1 || r.score == Score::kSigmoid, "groups go with sigmoids")
          .that(r.groups == 1 || r.experts / r.groups >= 2, "a group must have two experts at least")
          .that(r.top_k_groups >= 1 && r.top_k_groups <= r.groups, "top_k_groups must be from 1 to groups")
          .that(r.top_k <= r.experts / std::max(1, r.groups) * r.top_k_groups,
                "top_k is more than the chosen groups have")
          .that(r.scale > 0, "scale must be positive")
          .status);
  if (r.given != nullptr) TRY(check_given(r));
  stream.operations().route(stream.threads(), r);
  return {};
}

Status route_backward(Stream& stream, const RouteBackward& r) {
  TRY(Check{"route_backward"}
          .given("logits", r.logits)
          .given("ids", r.ids)
          .given("weights", r.weights)
          .given("grad_weights", r.grad_weights)
          .given("grad_logits", r.grad_logits)
          .positive("rows", r.rows)
          .positive("experts", r.experts)
          .that(r.top_k >= 1 && r.top_k <= r.experts, "top_k must be from 1 to experts")
          .that(r.grad_stride >= static_cast<size_t>(r.experts), "grad_stride is below experts")
          .that(r.scale > 0, "scale must be positive")
          .status);
  TRY(check_ids("route_backward", r.ids, r.rows, r.top_k, r.experts));
  stream.operations().route_backward(stream.threads(), r);
  return {};
}

Status group_by_expert(Stream&, const GroupByExpert& g) {
  Check check{"group_by_expert"};
  check.given("ids", g.ids).given("offsets", g.offsets).given("places", g.places).positive("experts", g.experts);
  TRY(check_top_k(check, g.rows, g.top_k).status);
  TRY(check_ids("group_by_expert", g.ids, g.rows, g.top_k, g.experts));
  const int pairs = g.rows * g.top_k;
  std::fill_n(g.offsets, g.experts + 1, 0);
  for (int pair = 0; pair < pairs; ++pair) ++g.offsets[g.ids[pair] + 1];
  for (int expert = 0; expert < g.experts; ++expert) g.offsets[expert + 1] += g.offsets[expert];
  // The start of each expert moves on as its pairs are placed, and is where the next one starts in the end.
  for (int pair = 0; pair < pairs; ++pair) g.places[pair] = g.offsets[g.ids[pair]]++;
  for (int expert = g.experts; expert > 0; --expert) g.offsets[expert] = g.offsets[expert - 1];
  g.offsets[0] = 0;
  return {};
}

template <typename T>
static Status checked_permute(Stream& stream, const BasicPermute<T>& p) {
  Check check{"permute"};
  check.given("x", p.x).given("places", p.places).given("out", p.out).positive("width", p.width);
  TRY(check_top_k(check, p.rows, p.top_k).status);
  TRY(check_places("permute", p.places, p.rows, p.top_k));
  stream.operations().in<T>().permute(stream.threads(), p);
  return {};
}
Status permute(Stream& stream, const BasicPermute<bf16>& p) { return checked_permute(stream, p); }
Status permute(Stream& stream, const BasicPermute<float>& p) { return checked_permute(stream, p); }

Status permute_backward(Stream& stream, const PermuteBackward& p) {
  Check check{"permute_backward"};
  check.given("grad_out", p.grad_out).given("places", p.places).given("grad_x", p.grad_x).positive("width", p.width);
  TRY(check_top_k(check, p.rows, p.top_k).status);
  TRY(check_places("permute_backward", p.places, p.rows, p.top_k));
  stream.operations().permute_backward(stream.threads(), p);
  return {};
}

template <typename T>
static Status checked_combine(Stream& stream, const BasicCombine<T>& c) {
  Check check{"combine"};
  check.given("y", c.y)
      .given("places", c.places)
      .given("weights", c.weights)
      .given("residual", c.residual)
      .given("out", c.out)
      .positive("width", c.width);
  TRY(check_top_k(check, c.rows, c.top_k).status);
  TRY(check_places("combine", c.places, c.rows, c.top_k));
  stream.operations().in<T>().combine(stream.threads(), c);
  return {};
}
Status combine(Stream& stream, const BasicCombine<bf16>& c) { return checked_combine(stream, c); }
Status combine(Stream& stream, const BasicCombine<float>& c) { return checked_combine(stream, c); }

Status combine_backward(Stream& stream, const CombineBackward& c) {
  Check check{"combine_backward"};
  check.given("y", c.y)
      .given("places", c.places)
      .given("weights", c.weights)
      .given("grad_out", c.grad_out)
      .given("grad_y", c.grad_y)
      .given("grad_weights", c.grad_weights)
      .positive("width", c.width);
  TRY(check_top_k(check, c.rows, c.top_k).status);
  TRY(check_places("combine_backward", c.places, c.rows, c.top_k));
  stream.operations().combine_backward(stream.threads(), c);
  return {};
}

template <typename T>
static Status checked_grouped_gemm(Stream& stream, const BasicGroupedGemm<T>& g) {
  TRY(Check{"grouped_gemm"}
          .positive("groups", g.groups)
          .positive("m", g.m)
          .positive("n", g.n)
          .positive("k", g.k)
          .given("a", g.a)
          .given("b", g.b.either())
          .that(g.b.codes == nullptr || sizeof(T) == sizeof(bf16), "codes go with bf16")
          .given("offsets", g.offsets)
          .given("out", g.out)
          .that(g.k % kSideBySide<T> == 0, "k must be even")
          .that(g.a_stride >= static_cast<size_t>(g.k), "a_stride is below k")
          .that(g.out_stride >= static_cast<size_t>(g.n), "out_stride is below n")
          .status);
  TRY(check_offsets("grouped_gemm", g.offsets, g.groups, g.m));
  stream.operations().in<T>().grouped_gemm(stream.threads(), g);
  return {};
}
Status grouped_gemm(Stream& stream, const BasicGroupedGemm<bf16>& g) { return checked_grouped_gemm(stream, g); }
Status grouped_gemm(Stream& stream, const BasicGroupedGemm<float>& g) { return checked_grouped_gemm(stream, g); }

size_t packed_groups_size(int columns, int rows, int groups) {
  const size_t padded = (static_cast<size_t>(columns) + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  return padded * (static_cast<size_t>(rows) + groups);
}

Status pack_groups(Stream& stream, const PackGroups& g) {
  TRY(Check{"pack_groups"}
          .positive("groups", g.groups)
          .positive("rows", g.rows)
          .positive("columns", g.columns)
          .given("x", g.x)
          .given("offsets", g.offsets)
          .given("packed", g.packed)
          .status);
  TRY(check_offsets("pack_groups", g.offsets, g.groups, g.rows));
  stream.operations().pack_groups(stream.threads(), g);
  return {};
}

Status k_grouped_gemm(Stream& stream, const KGroupedGemm& g) {
  TRY(Check{"k_grouped_gemm"}
          .positive("groups", g.groups)
          .positive("rows", g.rows)
          .positive("m", g.m)
          .positive("n", g.n)
          .given("a", g.a)
          .given("b", g.b)
          .given("offsets", g.offsets)
          .given("out", g.out)
          .status);
  TRY(check_offsets("k_grouped_gemm", g.offsets, g.groups, g.rows));
  stream.operations().k_grouped_gemm(stream.threads(), g);
  return {};
}

}  // namespace tandem::kernels
