#include "kernels/muon.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// Lying, upright, square, of odd sides, and one row alone.
struct Matrix {
  int rows, columns;
  bool nesterov, like_adamw;
};
constexpr Matrix kMatrices[] = {
    {20, 70, true, true}, {71, 33, false, false}, {64, 64, true, false}, {1, 5, true, true}};

TandemCudaMuon muon_arguments(Machine& machine, const Matrix& m) {
  const size_t count = static_cast<size_t>(m.rows) * m.columns;
  const size_t workspace = 8 * (count + 200) + 16 * 72 * 72;
  return {.grad = machine.place(random_floats(count, 1)),
          .master = machine.place(random_floats(count, 2)),
          .momentum = machine.place(random_floats(count, 3)),
          .weight = machine.room<uint16_t>(count),
          .rows = m.rows,
          .columns = m.columns,
          .grad_scale = 0.5f,
          .learning_rate = 0.02f,
          .beta = 0.95f,
          .weight_decay = 0.1f,
          .epsilon = 1e-7f,
          .nesterov = m.nesterov,
          .iterations = 5,
          .like_adamw = m.like_adamw,
          .workspace = machine.room<char>(workspace),
          .workspace_bytes = workspace};
}

Bytes muon_case(Machine& machine) {
  Bytes bytes;
  for (const Matrix& m : kMatrices) {
    const size_t count = static_cast<size_t>(m.rows) * m.columns;
    const TandemCudaMuon a = muon_arguments(machine, m);
    EXPECT_EQ(machine.run(a), 0);
    append(bytes, machine.fetch(a.master, count));
    append(bytes, machine.fetch(a.momentum, count));
    append(bytes, machine.fetch(a.weight, count));
  }
  return bytes;
}
Bytes muon_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const Matrix& m : kMatrices) {
    const size_t count = static_cast<size_t>(m.rows) * m.columns;
    const auto grad = random_floats(count, 1);
    auto master = random_floats(count, 2), momentum = random_floats(count, 3);
    std::vector<bf16> weight(count);
    std::vector<std::byte> memory(muon_workspace(m.rows, m.columns) + 64);
    auto* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    EXPECT_TRUE(muon(cpu, {.grad = grad.data(),
                           .master = master.data(),
                           .momentum = momentum.data(),
                           .weight = weight.data(),
                           .rows = m.rows,
                           .columns = m.columns,
                           .grad_scale = 0.5f,
                           .learning_rate = 0.02f,
                           .weight_decay = 0.1f,
                           .nesterov = m.nesterov,
                           .scale = m.like_adamw ? MuonScale::kLikeAdamW : MuonScale::kJordan,
                           .workspace = aligned}));
    append(bytes, master);
    append(bytes, momentum);
    append(bytes, weight);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(muon)

TEST(CudaHost, muon_refuses_sides_iterations_and_workspaces_that_cannot_be) {
  HostMachine machine;
  const auto code = [&](auto change) {
    TandemCudaMuon a = muon_arguments(machine, kMatrices[0]);
    change(a);
    return machine.run(a);
  };
  EXPECT_EQ(code([](auto& a) { a.rows = 0; }), kTandemCudaSize);
  EXPECT_EQ(code([](auto& a) { a.iterations = 21; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.workspace_bytes = 100; }), kTandemCudaWorkspace);
  EXPECT_EQ(code([](auto& a) { a.momentum = nullptr; }), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
