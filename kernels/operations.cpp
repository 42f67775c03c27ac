// The public functions: arguments checked, then handed to the instruction set of the stream.
#include "kernels/cpu/operations.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "kernels/argument_check.h"

namespace tandem::kernels {

namespace {

Status check_shape(const char* operation, const AttentionShape& s) {
  return Check{operation}
      .that(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, "heads must be a multiple of kv_heads")
      .that(s.head_size > 0 && s.head_size % 64 == 0 && s.head_size <= 256, "head_size must be 64, 128, 192 or 256")
      .that(s.window >= 0, "window must not be negative")
      .status;
}

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

Status pack(Stream& stream, const bf16* weight, int n, int k, bf16* packed) {
  TRY(Check{"pack"}
          .positive("n", n)
          .positive("k", k)
          .given("weight", weight)
          .given("packed", packed)
          .that(k % 2 == 0, "k must be even")
          .status);
  stream.operations().pack(stream.threads(), weight, n, k, packed);
  return {};
}

Status pack_transposed(Stream& stream, const bf16* weight, int k, int n, bf16* packed) {
  TRY(Check{"pack_transposed"}
          .positive("n", n)
          .positive("k", k)
          .given("weight", weight)
          .given("packed", packed)
          .status);
  stream.operations().pack_transposed(stream.threads(), weight, k, n, packed);
  return {};
}

Status gemm(Stream& stream, const Gemm& g) {
  TRY(Check{"gemm"}
          .positive("m", g.m)
          .positive("n", g.n)
          .positive("k", g.k)
          .given("a", g.a)
          .given("b", g.b)
          .that(g.k % 2 == 0, "k must be even")
          .that((g.out_bf16 == nullptr) != (g.out_float == nullptr),
                "exactly one of out_bf16 and out_float must be given")
          .that(g.bias == nullptr || g.out_bf16 != nullptr, "a bias goes with out_bf16")
          .that(g.residual == nullptr || g.out_bf16 != nullptr, "a residual goes with out_bf16")
          .that(!g.accumulate || g.out_float != nullptr, "accumulate goes with out_float")
          .that(g.a_packed || g.a_stride >= static_cast<size_t>(g.k), "a_stride is below k")
          .that(g.out_stride >= static_cast<size_t>(g.n), "out_stride is below n")
          .status);
  stream.operations().gemm(stream.threads(), g);
  return {};
}

Status write_pages(Stream& stream, const AttentionShape& shape, const bf16* keys, size_t key_stride, const bf16* values,
                   size_t value_stride, int rows, int position, std::span<const KeyValuePage> pages) {
  TRY(check_shape("write_pages", shape));
  TRY(Check{"write_pages"}
          .positive("rows", rows)
          .positive("position", position)
          .given("keys", keys)
          .given("values", values)
          .that(pages.size() * kPageTokens >= static_cast<size_t>(position) + rows, "too few pages for the positions")
          .status);
  stream.operations().write_pages(stream.threads(), shape, keys, key_stride, values, value_stride, rows, position,
                                  pages);
  return {};
}

Status attention(Stream& stream, const AttentionShape& shape, const bf16* queries, size_t query_stride,
                 std::span<const QueryRun> runs, bf16* out, size_t out_stride, float* log_sum) {
  TRY(check_shape("attention", shape));
  Check check{"attention"};
  check.given("queries", queries).given("out", out);
  for (const QueryRun& run : runs) {
    check.positive("row", run.row)
        .positive("rows", run.rows)
        .positive("position", run.position)
        .that(run.pages.size() * kPageTokens >= static_cast<size_t>(run.position) + run.rows,
              "a run has too few pages for its positions");
  }
  TRY(check.status);
  stream.operations().attention(stream.threads(), shape, queries, query_stride, runs, out, out_stride, log_sum);
  return {};
}

Status attention_backward(Stream& stream, const AttentionShape& shape, const AttentionBackward& a,
                          std::span<const std::vector<TreeRun>> trees) {
  TRY(check_shape("attention_backward", shape));
  Check check{"attention_backward"};
  check.given("queries", a.queries)
      .given("keys", a.keys)
      .given("values", a.values)
      .given("out", a.out)
      .given("grad_out", a.grad_out)
      .given("log_sum", a.log_sum)
      .given("grad_queries", a.grad_queries)
      .given("grad_keys", a.grad_keys)
      .given("grad_values", a.grad_values);
  for (const auto& runs : trees) {
    for (const TreeRun& run : runs) {
      check.that(run.row >= 0 && run.rows >= 0 && run.row + run.rows <= a.rows, "a run lies outside the rows")
          .that(run.path.size() >= static_cast<size_t>(run.rows), "a path is shorter than its run");
    }
  }
  TRY(check.status);
  stream.operations().attention_backward(stream.threads(), shape, a, trees);
  return {};
}

Status embed(Stream&, const bf16* table, int vocabulary, int width, std::span<const int32_t> ids, bf16* out) {
  for (size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] < 0 || ids[row] >= vocabulary) {
      return Status::invalid(
          fmt::format("embed: token {} at row {} is outside the vocabulary of {}", ids[row], row, vocabulary));
    }
    std::memcpy(out + row * width, table + static_cast<size_t>(ids[row]) * width, width * sizeof(bf16));
  }
  return {};
}

Status embed_backward(Stream& stream, const bf16* grad_out, int width, std::span<const int32_t> ids,
                      float* grad_table) {
  TRY(Check{"embed_backward"}
          .given("grad_out", grad_out)
          .given("grad_table", grad_table)
          .positive("width", width)
          .status);
  stream.operations().embed_backward(stream.threads(), grad_out, width, ids, grad_table);
  return {};
}

Status rms_norm(Stream& stream, const bf16* x, const bf16* weight, float epsilon, int rows, int width, bf16* out) {
  TRY(Check{"rms_norm"}
          .given("x", x)
          .given("weight", weight)
          .given("out", out)
          .positive("rows", rows)
          .positive("width", width)
          .status);
  stream.operations().rms_norm(stream.threads(), x, weight, epsilon, rows, width, out);
  return {};
}

Status rms_norm_backward(Stream& stream, const RmsNormBackward& a) {
  TRY(Check{"rms_norm_backward"}
          .given("x", a.x)
          .given("weight", a.weight)
          .given("grad_out", a.grad_out)
          .given("grad_x", a.grad_x)
          .given("grad_weight", a.grad_weight)
          .positive("rows", a.rows)
          .positive("width", a.width)
          .status);
  stream.operations().rms_norm_backward(stream.threads(), a);
  return {};
}

Status head_norm(Stream& stream, const HeadNorm& a) {
  TRY(Check{"head_norm"}
          .given("x", a.x)
          .given("weight", a.weight)
          .positive("rows", a.rows)
          .positive("heads", a.heads)
          .positive("head_size", a.head_size)
          .that(a.stride >= static_cast<size_t>(a.heads) * a.head_size, "stride is below heads * head_size")
          .status);
  stream.operations().head_norm(stream.threads(), a);
  return {};
}

Status head_norm_backward(Stream& stream, const HeadNormBackward& a) {
  TRY(Check{"head_norm_backward"}
          .given("x", a.x)
          .given("weight", a.weight)
          .given("grad", a.grad)
          .given("grad_weight", a.grad_weight)
          .positive("rows", a.rows)
          .positive("heads", a.heads)
          .positive("head_size", a.head_size)
          .that(a.stride >= static_cast<size_t>(a.heads) * a.head_size, "stride is below heads * head_size")
          .status);
  stream.operations().head_norm_backward(stream.threads(), a);
  return {};
}

Status sum_rows(Stream& stream, const SumRows& a) {
  TRY(Check{"sum_rows"}
          .given("x", a.x)
          .given("out", a.out)
          .positive("rows", a.rows)
          .positive("width", a.width)
          .that(a.stride >= static_cast<size_t>(a.width), "stride is below width")
          .status);
  stream.operations().sum_rows(stream.threads(), a);
  return {};
}

Status rope(Stream& stream, const Rope& r) {
  TRY(Check{"rope"}
          .given("x", r.x)
          .given("table", r.table)
          .positive("rows", r.rows)
          .positive("heads", r.heads)
          .that(r.head_size > 0 && r.rotated > 0 && r.rotated % 2 == 0 && r.rotated <= r.head_size,
                "rotated must be even and at most head_size")
          .that(r.stride >= static_cast<size_t>(r.heads) * r.head_size, "stride is below heads * head_size")
          .that(r.positions.size() >= static_cast<size_t>(r.rows), "fewer positions than rows")
          .status);
  for (int row = 0; row < r.rows; ++row) {
    if (r.positions[row] < 0 || r.positions[row] >= r.table_positions) {
      return Status::invalid(
          fmt::format("rope: position {} is outside the table of {}", r.positions[row], r.table_positions));
    }
  }
  stream.operations().rope(stream.threads(), r);
  return {};
}

std::vector<float> rope_table(int positions, std::span<const float> frequencies, double magnitude) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions) * frequencies.size() * 2);
  for (int position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      table.push_back(static_cast<float>(magnitude * std::cos(angle)));
      table.push_back(static_cast<float>(magnitude * std::sin(angle)));
    }
  }
  return table;
}

Status swiglu(Stream& stream, const bf16* gate_up, int rows, int width, bf16* out) {
  TRY(Check{"swiglu"}
          .given("gate_up", gate_up)
          .given("out", out)
          .positive("rows", rows)
          .positive("width", width)
          .status);
  stream.operations().swiglu(stream.threads(), gate_up, rows, width, out);
  return {};
}

Status swiglu_backward(Stream& stream, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                       bf16* grad_gate_up) {
  TRY(Check{"swiglu_backward"}
          .given("gate_up", gate_up)
          .given("grad_out", grad_out)
          .given("grad_gate_up", grad_gate_up)
          .positive("rows", rows)
          .positive("width", width)
          .status);
  stream.operations().swiglu_backward(stream.threads(), gate_up, grad_out, rows, width, grad_gate_up);
  return {};
}

Status add(Stream& stream, const bf16* y, size_t count, bf16* x) {
  TRY(Check{"add"}.given("x", x).given("y", y).status);
  stream.operations().add(stream.threads(), y, count, x);
  return {};
}

Status lm_head(Stream& stream, const LmHead& h, std::span<const TokenPick> picks, std::span<float> logprobs) {
  TRY(Check{"lm_head"}
          .given("hidden", h.hidden)
          .given("head", h.head)
          .given("log_sum", h.log_sum)
          .positive("rows", h.rows)
          .that(h.vocabulary > 0, "vocabulary must be positive")
          .that(h.width > 0 && h.width % 2 == 0, "width must be even")
          .that(logprobs.size() == picks.size(), "logprobs and picks differ in length")
          .status);
  TRY(check_picks("lm_head", picks, h.rows, h.vocabulary));
  stream.operations().lm_head(stream.threads(), h, picks, logprobs);
  return {};
}

Status lm_head_backward(Stream& stream, const LmHeadBackward& h, std::span<const TokenPick> picks,
                        std::span<const float> grad_logprobs, std::span<float> entropy_rows) {
  TRY(Check{"lm_head_backward"}
          .given("hidden", h.hidden)
          .given("head", h.head)
          .given("head_transposed", h.head_transposed)
          .given("log_sum", h.log_sum)
          .given("grad_hidden", h.grad_hidden)
          .given("grad_head", h.grad_head)
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

Status adamw(Stream& stream, const AdamW& a) {
  TRY(Check{"adamw"}
          .given("grad", a.grad)
          .given("master", a.master)
          .given("first_moment", a.first_moment)
          .given("second_moment", a.second_moment)
          .given("weight", a.weight)
          .that(a.step >= 1, "step counts from 1")
          .status);
  stream.operations().adamw(stream.threads(), a);
  return {};
}

Result<double> sum_of_squares(Stream& stream, const float* values, size_t count) {
  TRY(Check{"sum_of_squares"}.given("values", values).status);
  return stream.operations().sum_of_squares(stream.threads(), values, count);
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

}  // namespace tandem::kernels
