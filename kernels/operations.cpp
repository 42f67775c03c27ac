// The public functions: arguments checked, then handed to the instruction set of the stream.
#include "kernels/cpu/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kernels/argument_check.h"

namespace tandem::kernels {

namespace {

Status check_picks(const char* operation, std::span<const TokenPick> picks, int rows, int vocabulary) {
  int last = 0;
  for (const TokenPick& pick : picks) {
    if (pick.row < last || pick.row >= rows || pick.token < 0 || pick.token >= vocabulary) {
      return Status::invalid(fmt::format("{}: pick (row {}, token {}) is out of order or outside {} rows of {} tokens",
                                         operation, pick.row, pick.token, rows, vocabulary));
    }
    last = pick.row;
  }
  return {};
}

}  // namespace

size_t packed_size(int n, int k) { return padded_vocabulary(n) * 2 * ((static_cast<size_t>(k) + 1) / 2); }

template <typename T>
static Status checked_pack(Stream& stream, const T* weight, int n, int k, T* packed) {
  TRY(Check{"pack"}
          .positive("n", n)
          .positive("k", k)
          .given("weight", weight)
          .given("packed", packed)
          .that(k % kSideBySide<T> == 0, "k must be even")
          .status);
  stream.operations().in<T>().pack(stream.threads(), weight, n, k, packed);
  return {};
}
Status pack(Stream& stream, const bf16* weight, int n, int k, bf16* packed) {
  return checked_pack(stream, weight, n, k, packed);
}
Status pack(Stream& stream, const float* weight, int n, int k, float* packed) {
  return checked_pack(stream, weight, n, k, packed);
}

template <typename T>
static Status checked_pack_transposed(Stream& stream, const T* weight, int k, int n, T* packed) {
  TRY(Check{"pack_transposed"}
          .positive("n", n)
          .positive("k", k)
          .given("weight", weight)
          .given("packed", packed)
          .status);
  stream.operations().in<T>().pack_transposed(stream.threads(), weight, k, n, packed);
  return {};
}
Status pack_transposed(Stream& stream, const bf16* weight, int k, int n, bf16* packed) {
  return checked_pack_transposed(stream, weight, k, n, packed);
}
Status pack_transposed(Stream& stream, const float* weight, int k, int n, float* packed) {
  return checked_pack_transposed(stream, weight, k, n, packed);
}

size_t packed_codes_size(int n, int k) {
  const int blocks = (k + kCodedDepth - 1) / kCodedDepth;
  return padded_vocabulary(n) * (1 + size_t{kCodedDepth}) * static_cast<size_t>(blocks);
}

Result<bool> pack_codes(Stream& stream, const PackCodes& p) {
  TRY(Check{"pack_codes"}
          .positive("n", p.n)
          .positive("k", p.k)
          .given("codes", p.codes)
          .given("scales", p.scales)
          .given("packed", p.packed)
          .that(p.k % 2 == 0, "k must be even")
          .that(p.block == kScaleBlock || p.block == kMicroscaleBlock, "block must be 128 or 32")
          .that(p.block_rows == 1 || p.block_rows == kScaleBlock, "block_rows must be 1 or 128")
          .status);
  return stream.operations().pack_codes(stream.threads(), p);
}

template <typename T>
static Status checked_gemm(Stream& stream, const BasicGemm<T>& g) {
  TRY(Check{"gemm"}
          .positive("m", g.m)
          .positive("n", g.n)
          .positive("k", g.k)
          .given("a", g.a)
          .given("b", g.b.either())
          .that(g.b.codes == nullptr || (sizeof(T) == sizeof(bf16) && g.b_panel_stride == 0),
                "codes go with bf16 and without b_panel_stride")
          .that(g.k % kSideBySide<T> == 0, "k must be even")
          .that((g.out == nullptr) != (g.out_float == nullptr), "exactly one of out and out_float must be given")
          .that(g.bias == nullptr || g.out != nullptr, "a bias goes with out")
          .that(g.residual == nullptr || g.out != nullptr, "a residual goes with out")
          .that(!g.accumulate || g.out_float != nullptr, "accumulate goes with out_float")
          .that(!g.a_packed || sizeof(T) == sizeof(bf16), "a packed left side goes with bf16")
          .that(g.a_packed || g.a_stride >= static_cast<size_t>(g.k), "a_stride is below k")
          .that(g.out_stride >= static_cast<size_t>(g.n), "out_stride is below n")
          .status);
  stream.operations().in<T>().gemm(stream.threads(), g);
  return {};
}
Status gemm(Stream& stream, const BasicGemm<bf16>& g) { return checked_gemm(stream, g); }
Status gemm(Stream& stream, const BasicGemm<float>& g) { return checked_gemm(stream, g); }

template <typename T>
static Status checked_batched_gemm(Stream& stream, const BasicBatchedGemm<T>& g) {
  TRY(Check{"batched_gemm"}
          .given("a", g.a)
          .given("b", g.b)
          .given("out", g.out)
          .positive("groups", g.groups)
          .positive("m", g.m)
          .positive("n", g.n)
          .positive("k", g.k)
          .that(g.k % kSideBySide<T> == 0, "k must be even")
          .that(g.a_stride >= static_cast<size_t>(g.k), "a_stride is below k")
          .that(g.out_stride >= static_cast<size_t>(g.n), "out_stride is below n")
          .that(g.groups <= 1 || g.b_group >= packed_size(g.n, g.k), "b_group is below the size of a packed matrix")
          .status);
  stream.operations().in<T>().batched_gemm(stream.threads(), g);
  return {};
}
Status batched_gemm(Stream& stream, const BasicBatchedGemm<bf16>& g) { return checked_batched_gemm(stream, g); }
Status batched_gemm(Stream& stream, const BasicBatchedGemm<float>& g) { return checked_batched_gemm(stream, g); }

template <typename T>
static Status checked_lm_head(Stream& stream, const BasicLmHead<T>& h, std::span<const TokenPick> picks,
                              std::span<float> logprobs) {
  TRY(Check{"lm_head"}
          .given("hidden", h.hidden)
          .given("head", h.head)
          .given("log_sum", h.log_sum)
          .positive("rows", h.rows)
          .that(h.vocabulary > 0, "vocabulary must be positive")
          .that(h.width > 0 && h.width % kSideBySide<T> == 0, "width must be even")
          .that(logprobs.size() == picks.size(), "logprobs and picks differ in length")
          .that(h.kept == nullptr || (h.logits == nullptr && h.panel_sums == nullptr),
                "kept tokens go without logits and panel_sums")
          .status);
  TRY(check_picks("lm_head", picks, h.rows, h.vocabulary));
  stream.operations().in<T>().lm_head(stream.threads(), h, picks, logprobs);
  return {};
}
Status lm_head(Stream& stream, const BasicLmHead<bf16>& h, std::span<const TokenPick> picks,
               std::span<float> logprobs) {
  return checked_lm_head(stream, h, picks, logprobs);
}
Status lm_head(Stream& stream, const BasicLmHead<float>& h, std::span<const TokenPick> picks,
               std::span<float> logprobs) {
  return checked_lm_head(stream, h, picks, logprobs);
}

Result<float> kept_log_sum(const Stream& stream, std::span<const float> logits, std::span<const int32_t> kept) {
  const bool ascending = std::ranges::adjacent_find(kept, std::ranges::greater_equal()) == kept.end();
  if (kept.empty() || !ascending || kept.front() < 0 || static_cast<size_t>(kept.back()) >= logits.size())
    return fail(Status::invalid(
        fmt::format("kept_log_sum: kept tokens are none, out of order or outside a row of {}", logits.size())));
  return stream.operations().kept_log_sum(logits.data(), kept);
}

Status lm_head_backward(Stream& stream, const LmHeadBackward& h, std::span<const TokenPick> picks,
                        std::span<const float> grad_logprobs, std::span<float> entropy_rows) {
  TRY(Check{"lm_head_backward"}
          .given("hidden", h.hidden)
          .given("head", h.head)
          .given("head_transposed", h.head_transposed)
          .given("log_sum", h.log_sum)
          .given("grad_hidden", h.grad_hidden)
          .positive("rows", h.rows)
          .that(h.vocabulary > 0, "vocabulary must be positive")
          .that(grad_logprobs.size() == picks.size(), "grad_logprobs and picks differ in length")
          .that(entropy_rows.empty() || entropy_rows.size() == static_cast<size_t>(h.rows),
                "entropy_rows is neither empty nor one a row")
          .status);
  TRY(check_picks("lm_head_backward", picks, h.rows, h.vocabulary));
  stream.operations().lm_head_backward(stream.threads(), h, picks, grad_logprobs, entropy_rows);
  return {};
}

template <typename Moment>
static Status check_adamw(const BasicAdamW<Moment>& a) {
  return Check{"adamw"}
      .given("grad", a.grad)
      .given("master", a.master)
      .given("first_moment", a.first_moment)
      .given("second_moment", a.second_moment)
      .given("weight", a.weight)
      .that(a.step >= 1, "step counts from 1")
      .that((a.codes == nullptr) == (a.scales == nullptr), "codes and scales go together")
      .that(!a.codes || (a.columns > 0 && a.count % a.columns == 0), "columns must divide count where codes are given")
      .that(!a.codes || a.columns < 1 || a.count / a.columns <= INT32_MAX, "there are more rows than 2^31 - 1")
      .that(sizeof(Moment) == sizeof(float) || a.beta2 <= 0.996f, "beta2 must be at most 0.996 with bf16 moments")
      .status;
}
Status adamw(Stream& stream, const AdamW& a) {
  TRY(check_adamw(a));
  stream.operations().adamw(stream.threads(), a);
  return {};
}
Status adamw(Stream& stream, const BasicAdamW<bf16>& a) {
  TRY(check_adamw(a));
  stream.operations().adamw_bf16_moments(stream.threads(), a);
  return {};
}

Result<double> sum_of_squares(Stream& stream, const float* values, size_t count) {
  std::vector<double> sums((count + kSquaresPiece - 1) / kSquaresPiece);
  TRY(sums_of_squares(stream, values, count, sums.data()));
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

Status sums_of_squares(Stream& stream, const float* values, size_t count, double* sums) {
  TRY(Check{"sum_of_squares"}.given("values", values).status);
  stream.operations().sums_of_squares(stream.threads(), values, count, sums);
  return {};
}

Status quantize(Stream& stream, const Quantize& q) {
  TRY(Check{"quantize"}
          .given("x", q.x)
          .positive("rows", q.rows)
          .positive("columns", q.columns)
          .that(q.block == kScaleBlock || q.block == kMicroscaleBlock, "block must be 128 or 32")
          .that(q.stride >= static_cast<size_t>(q.columns), "stride is below columns")
          .that((q.by_row == nullptr) == (q.row_scales == nullptr), "by_row and row_scales go together")
          .that((q.by_column == nullptr) == (q.column_scales == nullptr), "by_column and column_scales go together")
          .that(q.by_row || q.by_column, "neither by_row nor by_column is given")
          .status);
  stream.operations().quantize(stream.threads(), q);
  return {};
}

Status quantize_weight(Stream& stream, const bf16* weight, int rows, int columns, e4m3* out, e8m0* scales) {
  TRY(Check{"quantize_weight"}
          .given("weight", weight)
          .given("out", out)
          .given("scales", scales)
          .positive("rows", rows)
          .positive("columns", columns)
          .status);
  stream.operations().quantize_weight(stream.threads(), weight, rows, columns, out, scales);
  return {};
}

Status expand(Stream& stream, const Expand& e) {
  TRY(Check{"expand"}
          .given("codes", e.codes)
          .given("scales", e.scales)
          .given("out", e.out)
          .positive("rows", e.rows)
          .positive("columns", e.columns)
          .that(e.block == kScaleBlock || e.block == kMicroscaleBlock, "block must be 128 or 32")
          .that(e.block_rows == 1 || e.block_rows == kScaleBlock, "block_rows must be 1 or 128")
          .status);
  stream.operations().expand(stream.threads(), e);
  return {};
}

Status round_to_codes(Stream& stream, const RoundToCodes& r) {
  TRY(Check{"round_to_codes"}
          .given("x", r.x)
          .given("out", r.out)
          .positive("rows", r.rows)
          .positive("columns", r.columns)
          .that(r.block == kScaleBlock || r.block == kMicroscaleBlock, "block must be 128 or 32")
          .status);
  stream.operations().round_to_codes(stream.threads(), r);
  return {};
}

}  // namespace tandem::kernels
