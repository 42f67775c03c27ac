// The way back of norms, gates and biases, and what becomes E4M3 on the way: the host's bits are those of the AVX2
// kernels.
#include "kernels/quantize.h"
#include "kernels/transformer_ops.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRows = 130, kWidth = 100;  // three pieces of rows, and a width that 16 lanes do not divide
constexpr size_t kElements = size_t{kRows} * kWidth;
constexpr int kHeads = 4, kHeadSize = 20;

Bytes head_norm_backward_case(Machine& machine) {
  const size_t workspace = kElements * 4;
  const TandemCudaHeadNormBackward n{.x = machine.place(random_bf16(kElements, 1)),
                                     .grad = machine.place(random_bf16(kElements, 2)),
                                     .stride = kWidth,
                                     .weight = machine.place(random_bf16(kHeadSize, 3)),
                                     .grad_weight = machine.place(random_floats(kHeadSize, 4)),
                                     .epsilon = 1e-6f,
                                     .rows = kRows,
                                     .heads = kHeads,
                                     .head_size = kHeadSize,
                                     .workspace = machine.room<char>(workspace),
                                     .workspace_bytes = workspace};
  EXPECT_EQ(machine.run(n), 0);
  Bytes bytes;
  append(bytes, machine.fetch(n.grad, kElements));
  append(bytes, machine.fetch(n.grad_weight, kHeadSize));
  return bytes;
}
Bytes head_norm_backward_on_cpu(Stream& cpu) {
  const auto x = random_bf16(kElements, 1), weight = random_bf16(kHeadSize, 3);
  auto grad = random_bf16(kElements, 2);
  auto grad_weight = random_floats(kHeadSize, 4);
  EXPECT_TRUE(head_norm_backward(cpu, {.x = x.data(),
                                       .grad = grad.data(),
                                       .stride = kWidth,
                                       .weight = weight.data(),
                                       .grad_weight = grad_weight.data(),
                                       .epsilon = 1e-6f,
                                       .rows = kRows,
                                       .heads = kHeads,
                                       .head_size = kHeadSize}));
  Bytes bytes;
  append(bytes, grad);
  append(bytes, grad_weight);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(head_norm_backward)

Bytes sum_rows_case(Machine& machine) {
  const TandemCudaSumRows s{.x = machine.place(random_bf16(kElements, 1)),
                            .stride = kWidth,
                            .out = machine.place(random_floats(kWidth - 3, 2)),
                            .rows = kRows,
                            .width = kWidth - 3,
                            .workspace = machine.room<char>(kElements),
                            .workspace_bytes = kElements};
  EXPECT_EQ(machine.run(s), 0);
  Bytes bytes;
  append(bytes, machine.fetch(s.out, kWidth - 3));
  return bytes;
}
Bytes sum_rows_on_cpu(Stream& cpu) {
  const auto x = random_bf16(kElements, 1);
  auto out = random_floats(kWidth - 3, 2);
  EXPECT_TRUE(sum_rows(cpu, {.x = x.data(), .stride = kWidth, .out = out.data(), .rows = kRows, .width = kWidth - 3}));
  Bytes bytes;
  append(bytes, out);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(sum_rows)

Bytes geglu_backward_case(Machine& machine) {
  const TandemCudaGegluBackward g{.gate_up = machine.place(random_bf16(kElements * 2, 1, 30)),
                                  .grad_out = machine.place(random_bf16(kElements, 2)),
                                  .grad_gate_up = machine.room<uint16_t>(kElements * 2),
                                  .rows = kRows,
                                  .width = kWidth};
  EXPECT_EQ(machine.run(g), 0);
  Bytes bytes;
  append(bytes, machine.fetch(g.grad_gate_up, kElements * 2));
  return bytes;
}
Bytes geglu_backward_on_cpu(Stream& cpu) {
  const auto gate_up = random_bf16(kElements * 2, 1, 30), grad_out = random_bf16(kElements, 2);
  std::vector<bf16> grad(kElements * 2);
  EXPECT_TRUE(geglu_backward(cpu, gate_up.data(), grad_out.data(), kRows, kWidth, grad.data()));
  Bytes bytes;
  append(bytes, grad);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(geglu_backward)

// With and without a residual, rows and codes; blocks of both sizes.
struct Form {
  bool residual, rows, codes;
  int block;
};
constexpr Form kForms[] = {{true, true, true, kScaleBlock},
                           {false, false, true, kMicroscaleBlock},
                           {true, true, false, kScaleBlock},
                           {true, false, true, kMicroscaleBlock}};
constexpr int kWide = 300;
constexpr size_t kWideElements = size_t{kRows} * kWide;
size_t scales_of(const Form& form) { return kRows * scale_blocks(kWide, form.block); }

// What was made, as far as it was asked for: rows, and their codes and scales.
void append_parts(Stream& cpu, const Form& form, const std::vector<bf16>& made, Bytes& bytes) {
  std::vector<e4m3> codes(kWideElements);
  std::vector<e8m0> scales(scales_of(form));
  EXPECT_TRUE(quantize(cpu, {.x = made.data(),
                             .stride = kWide,
                             .by_row = codes.data(),
                             .row_scales = scales.data(),
                             .rows = kRows,
                             .columns = kWide,
                             .block = form.block}));
  if (form.rows) append(bytes, made);
  if (form.codes) append(bytes, codes);
  if (form.codes) append(bytes, scales);
}

Bytes norm_quantize_case(Machine& machine) {
  Bytes bytes;
  for (const Form& form : kForms) {
    const TandemCudaNormQuantize n{.x = machine.place(random_bf16(kWideElements, 1)),
                                   .residual = form.residual ? machine.place(random_bf16(kWideElements, 2)) : nullptr,
                                   .weight = machine.place(random_bf16(kWide, 3)),
                                   .out = form.rows ? machine.room<uint16_t>(kWideElements) : nullptr,
                                   .codes = form.codes ? machine.room<uint8_t>(kWideElements) : nullptr,
                                   .scales = form.codes ? machine.room<uint8_t>(scales_of(form)) : nullptr,
                                   .epsilon = 1e-5f,
                                   .rows = kRows,
                                   .width = kWide,
                                   .block = form.block};
    EXPECT_EQ(machine.run(n), 0);
    append(bytes, machine.fetch(n.x, kWideElements));
    if (form.rows) append(bytes, machine.fetch(n.out, kWideElements));
    if (form.codes) append(bytes, machine.fetch(n.codes, kWideElements));
    if (form.codes) append(bytes, machine.fetch(n.scales, scales_of(form)));
  }
  return bytes;
}
Bytes norm_quantize_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const Form& form : kForms) {
    auto x = random_bf16(kWideElements, 1);
    const auto residual = random_bf16(kWideElements, 2), weight = random_bf16(kWide, 3);
    std::vector<bf16> out(kWideElements);
    if (form.residual) {
      EXPECT_TRUE(add(cpu, residual.data(), x.size(), x.data()));
    }
    EXPECT_TRUE(rms_norm(cpu, x.data(), weight.data(), 1e-5f, kRows, kWide, out.data()));
    append(bytes, x);
    append_parts(cpu, form, out, bytes);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(norm_quantize)

Bytes gate_quantize_case(Machine& machine) {
  Bytes bytes;
  for (const Form& form : kForms) {
    const TandemCudaGateQuantize g{.gate_up = machine.place(random_bf16(kWideElements * 2, 1, 3)),
                                   .out = form.rows ? machine.room<uint16_t>(kWideElements) : nullptr,
                                   .codes = form.codes ? machine.room<uint8_t>(kWideElements) : nullptr,
                                   .scales = form.codes ? machine.room<uint8_t>(scales_of(form)) : nullptr,
                                   .gelu_tanh = form.residual,
                                   .rows = kRows,
                                   .width = kWide,
                                   .block = form.block};
    EXPECT_EQ(machine.run(g), 0);
    if (form.rows) append(bytes, machine.fetch(g.out, kWideElements));
    if (form.codes) append(bytes, machine.fetch(g.codes, kWideElements));
    if (form.codes) append(bytes, machine.fetch(g.scales, scales_of(form)));
  }
  return bytes;
}
Bytes gate_quantize_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const Form& form : kForms) {
    const auto gate_up = random_bf16(kWideElements * 2, 1, 3);
    std::vector<bf16> out(kWideElements);
    EXPECT_TRUE(form.residual ? geglu(cpu, gate_up.data(), kRows, kWide, out.data())
                              : swiglu(cpu, gate_up.data(), kRows, kWide, out.data()));
    append_parts(cpu, form, out, bytes);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(gate_quantize)

TEST(CudaHost, norms_gates_and_biases_refuse_what_does_not_go_together) {
  HostMachine machine;
  uint16_t* some = machine.room<uint16_t>(64);
  uint8_t* codes = machine.room<uint8_t>(64);
  TandemCudaNormQuantize n{
      .x = some, .weight = some, .codes = codes, .scales = codes, .rows = 1, .width = 8, .block = 32};
  EXPECT_EQ(machine.run(n), kTandemCudaOk);
  n.block = 64;
  EXPECT_EQ(machine.run(n), kTandemCudaShape);
  n.scales = nullptr;
  EXPECT_EQ(machine.run(n), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaGateQuantize{.gate_up = some, .rows = 1, .width = 8, .block = 32}), kTandemCudaNull);
  EXPECT_EQ(
      machine.run(TandemCudaHeadNorm{.x = some, .stride = 7, .weight = some, .rows = 1, .heads = 2, .head_size = 4}),
      kTandemCudaStride);
  TandemCudaSumRows s{.x = some, .stride = 4, .out = machine.room<float>(4), .rows = 65, .width = 4};
  EXPECT_EQ(machine.run(s), kTandemCudaNull);
  s.workspace = some;
  s.workspace_bytes = 2 * 4 * sizeof(float) - 1;  // a row of sums for each of two pieces
  EXPECT_EQ(machine.run(s), kTandemCudaWorkspace);
  EXPECT_EQ(machine.run(TandemCudaRope{.x = some,
                                       .stride = 8,
                                       .positions = machine.place(std::vector<int32_t>{0}),
                                       .table = machine.room<float>(8),
                                       .rows = 1,
                                       .heads = 1,
                                       .head_size = 8,
                                       .table_positions = 1,
                                       .rope_dim = 10}),
            kTandemCudaShape);
}

}  // namespace
}  // namespace tandem::kernels::cuda
