// The public functions of the row-wise operations: arguments checked, then handed to the instruction set of the stream.
#include "kernels/transformer_ops.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "kernels/argument_check.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

template <typename T>
static Status checked_embed(const T* table, int vocabulary, int width, std::span<const int32_t> ids, T* out) {
  TRY(Check{"embed"}.given("table", table).given("out", out).positive("width", width).status);
  for (size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] < 0 || ids[row] >= vocabulary) {
      return Status::invalid(
          fmt::format("embed: token {} at row {} is outside the vocabulary of {}", ids[row], row, vocabulary));
    }
    std::memcpy(out + row * width, table + static_cast<size_t>(ids[row]) * width, width * sizeof(T));
  }
  return {};
}
Status embed(Stream&, const bf16* table, int vocabulary, int width, std::span<const int32_t> ids, bf16* out) {
  return checked_embed(table, vocabulary, width, ids, out);
}
Status embed(Stream&, const float* table, int vocabulary, int width, std::span<const int32_t> ids, float* out) {
  return checked_embed(table, vocabulary, width, ids, out);
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

template <typename T>
static Status checked_rms_norm(Stream& stream, const T* x, const T* weight, float epsilon, int rows, int width,
                               T* out) {
  TRY(Check{"rms_norm"}
          .given("x", x)
          .given("weight", weight)
          .given("out", out)
          .positive("rows", rows)
          .positive("width", width)
          .status);
  stream.operations().in<T>().rms_norm(stream.threads(), x, weight, epsilon, rows, width, out);
  return {};
}
Status rms_norm(Stream& stream, const bf16* x, const bf16* weight, float epsilon, int rows, int width, bf16* out) {
  return checked_rms_norm(stream, x, weight, epsilon, rows, width, out);
}
Status rms_norm(Stream& stream, const float* x, const float* weight, float epsilon, int rows, int width, float* out) {
  return checked_rms_norm(stream, x, weight, epsilon, rows, width, out);
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

template <typename T>
static Status checked_head_norm(Stream& stream, const BasicHeadNorm<T>& a) {
  TRY(Check{"head_norm"}
          .given("x", a.x)
          .given("weight", a.weight)
          .positive("rows", a.rows)
          .positive("heads", a.heads)
          .positive("head_size", a.head_size)
          .that(a.stride >= static_cast<size_t>(a.heads) * a.head_size, "stride is below heads * head_size")
          .status);
  stream.operations().in<T>().head_norm(stream.threads(), a);
  return {};
}
Status head_norm(Stream& stream, const BasicHeadNorm<bf16>& a) { return checked_head_norm(stream, a); }
Status head_norm(Stream& stream, const BasicHeadNorm<float>& a) { return checked_head_norm(stream, a); }

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

template <typename T>
static Status checked_rope(Stream& stream, const BasicRope<T>& r) {
  TRY(Check{"rope"}
          .given("x", r.x)
          .given("table", r.table)
          .positive("rows", r.rows)
          .positive("heads", r.heads)
          .that(r.head_size > 0 && r.rope_dim > 0 && r.rope_dim % 2 == 0 && r.rope_dim <= r.head_size,
                "rope_dim must be even and at most head_size")
          .that(r.stride >= static_cast<size_t>(r.heads) * r.head_size, "stride is below heads * head_size")
          .that(r.positions.size() >= static_cast<size_t>(r.rows), "fewer positions than rows")
          .status);
  for (int row = 0; row < r.rows; ++row) {
    if (r.positions[row] < 0 || r.positions[row] >= r.table_positions) {
      return Status::invalid(
          fmt::format("rope: position {} is outside the table of {}", r.positions[row], r.table_positions));
    }
  }
  stream.operations().in<T>().rope(stream.threads(), r);
  return {};
}
Status rope(Stream& stream, const BasicRope<bf16>& r) { return checked_rope(stream, r); }
Status rope(Stream& stream, const BasicRope<float>& r) { return checked_rope(stream, r); }

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

template <typename T>
static Status check_gate(const char* operation, const T* gate_up, int rows, int width, const T* out) {
  return Check{operation}
      .given("gate_up", gate_up)
      .given("out", out)
      .positive("rows", rows)
      .positive("width", width)
      .status;
}
template <typename T>
static Status checked_swiglu(Stream& stream, const T* gate_up, int rows, int width, T* out) {
  TRY(check_gate("swiglu", gate_up, rows, width, out));
  stream.operations().in<T>().swiglu(stream.threads(), gate_up, rows, width, out);
  return {};
}
Status swiglu(Stream& stream, const bf16* gate_up, int rows, int width, bf16* out) {
  return checked_swiglu(stream, gate_up, rows, width, out);
}
Status swiglu(Stream& stream, const float* gate_up, int rows, int width, float* out) {
  return checked_swiglu(stream, gate_up, rows, width, out);
}
template <typename T>
static Status checked_geglu(Stream& stream, const T* gate_up, int rows, int width, T* out) {
  TRY(check_gate("geglu", gate_up, rows, width, out));
  stream.operations().in<T>().geglu(stream.threads(), gate_up, rows, width, out);
  return {};
}
Status geglu(Stream& stream, const bf16* gate_up, int rows, int width, bf16* out) {
  return checked_geglu(stream, gate_up, rows, width, out);
}
Status geglu(Stream& stream, const float* gate_up, int rows, int width, float* out) {
  return checked_geglu(stream, gate_up, rows, width, out);
}

static Status check_gate_backward(const char* operation, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                                  const bf16* grad_gate_up) {
  return Check{operation}
      .given("gate_up", gate_up)
      .given("grad_out", grad_out)
      .given("grad_gate_up", grad_gate_up)
      .positive("rows", rows)
      .positive("width", width)
      .status;
}
Status swiglu_backward(Stream& stream, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                       bf16* grad_gate_up) {
  TRY(check_gate_backward("swiglu_backward", gate_up, grad_out, rows, width, grad_gate_up));
  stream.operations().swiglu_backward(stream.threads(), gate_up, grad_out, rows, width, grad_gate_up);
  return {};
}
Status geglu_backward(Stream& stream, const bf16* gate_up, const bf16* grad_out, int rows, int width,
                      bf16* grad_gate_up) {
  TRY(check_gate_backward("geglu_backward", gate_up, grad_out, rows, width, grad_gate_up));
  stream.operations().geglu_backward(stream.threads(), gate_up, grad_out, rows, width, grad_gate_up);
  return {};
}

template <typename T>
static Status checked_add(Stream& stream, const T* y, size_t count, T* x) {
  TRY(Check{"add"}.given("x", x).given("y", y).status);
  stream.operations().in<T>().add(stream.threads(), y, count, x);
  return {};
}
Status add(Stream& stream, const bf16* y, size_t count, bf16* x) { return checked_add(stream, y, count, x); }
Status add(Stream& stream, const float* y, size_t count, float* x) { return checked_add(stream, y, count, x); }

}  // namespace tandem::kernels
