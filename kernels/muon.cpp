// Muon out of public operations: its time is in the products, so what is between them is plain C++ for all instruction
// sets.
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/argument_check.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "kernels/threads.h"

namespace tandem::kernels {

namespace {

constexpr float kA = 3.4445f, kB = -4.775f, kC = 2.0315f;
constexpr size_t kAlignment = 64;
constexpr size_t kPieceElements = size_t{1} << 14;

constexpr size_t even(int side) { return (static_cast<size_t>(side) + 1) / 2 * 2; }
constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Sides are even here: a zero row or column more changes no product of the others and stays zero.
struct Workspace {
  size_t shorter, longer;
  float* sums;  // of a product, or the update before it is made smaller: [shorter][longer]
  bf16 *x, *gram, *packed_x, *packed_gram;
  size_t bytes;

  Workspace(int rows, int columns, std::byte* memory)
      : shorter(std::min(even(rows), even(columns))), longer(std::max(even(rows), even(columns))) {
    size_t used = 0;
    const auto take = [&]<typename T>(T*& array, size_t count) {
      array = memory ? reinterpret_cast<T*>(memory + used) : nullptr;
      used += aligned(count * sizeof(T));
    };
    const int s = static_cast<int>(shorter), l = static_cast<int>(longer);
    take(sums, shorter * longer);
    take(x, shorter * longer);
    take(gram, shorter * shorter);
    take(packed_x, std::max(packed_size(s, l), packed_size(l, s)));
    take(packed_gram, packed_size(s, s));
    bytes = used;
  }
};

// of(i) for all i, in pieces by any thread.
template <typename Of>
void for_elements(Stream& stream, size_t count, const Of& of) {
  const size_t pieces = (count + kPieceElements - 1) / kPieceElements;
  stream.threads().run(static_cast<int>(pieces), [&](int piece) {
    const size_t begin = piece * kPieceElements, end = std::min(count, begin + kPieceElements);
    for (size_t i = begin; i < end; ++i) of(i);
  });
}

// Momentum moves; the update, divided by its norm, becomes w.x with the shorter side first.
Status start(Stream& stream, const Muon& a, const Workspace& w) {
  const size_t count = static_cast<size_t>(a.rows) * a.columns;
  const float beta = a.beta, rest = 1 - a.beta;
  for_elements(stream, count, [&](size_t i) {
    const float grad = a.grad[i] * a.grad_scale;
    const float momentum = a.momentum[i] = beta * a.momentum[i] + rest * grad;
    w.sums[i] = a.nesterov ? rest * grad + beta * momentum : momentum;
  });
  const double norm = std::sqrt(TRY(sum_of_squares(stream, w.sums, count)));
  const auto inverse = static_cast<float>(1 / std::max(norm, static_cast<double>(a.epsilon)));
  std::fill_n(w.x, w.shorter * w.longer, bf16{});
  const bool upright = a.rows > a.columns;
  for_elements(stream, count, [&](size_t i) {
    const size_t row = i / a.columns, column = i % a.columns;
    w.x[upright ? column * w.longer + row : row * w.longer + column] = to_bf16(w.sums[i] * inverse);
  });
  return {};
}

Status iterate(Stream& stream, const Workspace& w) {
  const int s = static_cast<int>(w.shorter), l = static_cast<int>(w.longer);
  TRY(pack(stream, w.x, s, l, w.packed_x));
  TRY(gemm(stream, {.a = w.x,
                    .a_stride = w.longer,
                    .b = w.packed_x,
                    .out = w.gram,
                    .out_stride = w.shorter,
                    .m = s,
                    .n = s,
                    .k = l}));
  TRY(pack(stream, w.gram, s, s, w.packed_gram));  // its own transpose
  TRY(gemm(stream, {.a = w.gram,
                    .a_stride = w.shorter,
                    .b = w.packed_gram,
                    .out_float = w.sums,
                    .out_stride = w.shorter,
                    .m = s,
                    .n = s,
                    .k = s}));
  for_elements(stream, w.shorter * w.shorter,
               [&](size_t i) { w.gram[i] = to_bf16(kB * to_float(w.gram[i]) + kC * w.sums[i]); });
  TRY(pack_transposed(stream, w.x, s, l, w.packed_x));
  TRY(gemm(stream, {.a = w.gram,
                    .a_stride = w.shorter,
                    .b = w.packed_x,
                    .out_float = w.sums,
                    .out_stride = w.longer,
                    .m = s,
                    .n = l,
                    .k = s}));
  for_elements(stream, w.shorter * w.longer, [&](size_t i) { w.x[i] = to_bf16(kA * to_float(w.x[i]) + w.sums[i]); });
  return {};
}

float scale_of(const Muon& a) {
  const double rows = a.rows, columns = a.columns;
  return static_cast<float>(a.scale == MuonScale::kJordan ? std::sqrt(std::max(1.0, rows / columns))
                                                          : 0.2 * std::sqrt(std::max(rows, columns)));
}

}  // namespace

size_t muon_workspace(int rows, int columns) { return Workspace(rows, columns, nullptr).bytes; }

Status muon(Stream& stream, const Muon& a) {
  TRY(Check{"muon"}
          .given("grad", a.grad)
          .given("master", a.master)
          .given("momentum", a.momentum)
          .given("weight", a.weight)
          .given("workspace", a.workspace)
          .positive("rows", a.rows)
          .positive("columns", a.columns)
          .that(a.rows > 0 && a.columns > 0, "rows and columns must be at least 1")
          .that(a.iterations >= 1 && a.iterations <= 20, "iterations must be 1 to 20")
          .that(reinterpret_cast<uintptr_t>(a.workspace) % kAlignment == 0, "workspace is not at a multiple of 64")
          .status);
  const Workspace w(a.rows, a.columns, a.workspace);
  TRY(start(stream, a, w));
  for (int i = 0; i < a.iterations; ++i) TRY(iterate(stream, w));
  const float keep = 1 - a.learning_rate * a.weight_decay, step = a.learning_rate * scale_of(a);
  const bool upright = a.rows > a.columns;
  for_elements(stream, static_cast<size_t>(a.rows) * a.columns, [&](size_t i) {
    const size_t row = i / a.columns, column = i % a.columns;
    const float moved = to_float(w.x[upright ? column * w.longer + row : row * w.longer + column]);
    a.master[i] = a.master[i] * keep - step * moved;
    a.weight[i] = to_bf16(a.master[i]);
  });
  return {};
}

}  // namespace tandem::kernels
