// How a kernel that works by warps is written, so that a GPU and the host run the very same source: as in
// execution.cuh, but that it has
//   kWarps                                          warps of a block
//   bool run(block, phase, warp, shared, own)       one phase of one warp
// and that `own` holds Registers, which a warp's instructions read and write together. On a GPU each lane runs the
// function and has its own registers; on the host it runs once a warp, and has those of all lanes. What differs from
// lane to lane is done by each_lane. `Shared` may be as large as a block's shared memory.
//
// Facts of the instructions are those of NVIDIA's PTX ISA, version 9.0: "mma.m16n8k16", "ldmatrix", "cp.async".
#pragma once

#include "kernels/cuda/execution.cuh"
#include "kernels/cuda/tensor_sums.cuh"

namespace tandem::kernels::cuda {

// Before a loop that must have no counter, as indices of registers come from it.
#ifdef __CUDA_ARCH__
#define TANDEM_UNROLL _Pragma("unroll")
#else
#define TANDEM_UNROLL
#endif

constexpr int kWarp = 32;

// A kernel's workers, each of which runs a phase: kWarps warps or kThreads threads of a block. A kernel that is written
// for tiles of both kinds has those of its tile, as Workers.
template <typename Kernel>
concept ByWarps = requires {
  Kernel::kWarps;
}
|| requires { Kernel::Workers::kWarps; };
template <typename Kernel>
constexpr int workers_of() {
  if constexpr (requires { Kernel::kWarps; })
    return Kernel::kWarps;
  else if constexpr (requires { Kernel::Workers::kWarps; })
    return Kernel::Workers::kWarps;
  else if constexpr (requires { Kernel::Workers::kThreads; })
    return Kernel::Workers::kThreads;
  else
    return Kernel::kThreads;
}

// Blocks that a processor of a GPU is to hold at one time at least, which bounds the registers of a thread.
template <typename Kernel>
constexpr int blocks_at_once_of() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  return 1;  // for which the same code takes more registers
#else
  if constexpr (requires { Kernel::Workers::kAtOnce; })
    return Kernel::Workers::kAtOnce;
  else
    return 1;
#endif
}

// N values of each lane of a warp.
template <typename T, int N>
struct Registers {
#ifdef __CUDA_ARCH__
  T values[N];
  TANDEM_HD T& at(int, int i) { return values[i]; }
  TANDEM_HD const T& at(int, int i) const { return values[i]; }
#else
  T values[kWarp][N];
  TANDEM_HD T& at(int lane, int i) { return values[lane][i]; }
  TANDEM_HD const T& at(int lane, int i) const { return values[lane][i]; }
#endif
};

// body(lane) for each lane; on a GPU its index of a register must be a constant once loops are unrolled.
template <typename Body>
TANDEM_HD void each_lane(const Body& body) {
#ifdef __CUDA_ARCH__
  body(static_cast<int>(threadIdx.x % kWarp));
#else
  for (int lane = 0; lane < kWarp; ++lane) body(lane);
#endif
}

TANDEM_HD uint32_t pair_of_bf16(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

// sums (16 x 8) += a (16 x 16) b (16 x 8), of bf16, as one instruction of tensor cores adds. Registers of a lane, where
// g = lane / 4 and t = lane % 4, two elements of bf16 in one:
//   a[a_at + 0 .. 3]: (row, k) = (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), and k + 1
//   b[b_at + 0 .. 1]: (k, column) = (2t, g), (2t + 8, g), and k + 1
//   sums[sums_at + 0 .. 3]: (row, column) = (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
template <int Sums, int A, int B>
TANDEM_HD void multiply(Registers<float, Sums>& sums, int sums_at, const Registers<uint32_t, A>& a, int a_at,
                        const Registers<uint32_t, B>& b, int b_at) {
#ifdef __CUDA_ARCH__
  float* const d = sums.values + sums_at;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.values[a_at]), "r"(a.values[a_at + 1]), "r"(a.values[a_at + 2]), "r"(a.values[a_at + 3]),
        "r"(b.values[b_at]), "r"(b.values[b_at + 1]));
#else
  uint16_t rows[16][kTensorTerms], columns[8][kTensorTerms];
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i)
        rows[g + i % 2 * 8][2 * t + i / 2 * 8 + half] = static_cast<uint16_t>(a.at(lane, a_at + i) >> (16 * half));
      for (int i = 0; i < 2; ++i)
        columns[g][2 * t + i * 8 + half] = static_cast<uint16_t>(b.at(lane, b_at + i) >> (16 * half));
    }
  }
  TensorTerms row_terms[16], column_terms[8];
  for (int i = 0; i < 16; ++i) row_terms[i] = tensor_terms(rows[i]);
  for (int i = 0; i < 8; ++i) column_terms[i] = tensor_terms(columns[i]);
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) {
      float& sum = sums.at(lane, sums_at + i);
      sum = tensor_sum_of_terms(row_terms[lane / 4 + i / 2 * 8], column_terms[2 * (lane % 4) + i % 2], sum);
    }
  }
#endif
}

// Four matrices of 8 x 8 elements of 16 bits from shared memory: row_of(lane) is where row lane % 8 of matrix lane / 8
// begins, at a multiple of 16 bytes. A lane gets of matrix i, in registers[at + i], the elements 2t and 2t + 1 of row
// g, and with Transposed the elements g of rows 2t and 2t + 1.
template <bool Transposed, int N, typename RowOf>
TANDEM_HD void load_matrices(Registers<uint32_t, N>& registers, int at, const RowOf& row_of) {
#ifdef __CUDA_ARCH__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row_of(static_cast<int>(threadIdx.x % kWarp))));
  uint32_t* const r = registers.values + at;
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#else
  const uint16_t* rows[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) rows[lane] = row_of(lane);
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const uint16_t* const* matrix = rows + 8 * i;
      registers.at(lane, at + i) = Transposed ? pair_of_bf16(matrix[2 * t][g], matrix[2 * t + 1][g])
                                              : pair_of_bf16(matrix[g][2 * t], matrix[g][2 * t + 1]);
    }
  }
#endif
}

// The sum, or the largest, of a value over lanes 4g .. 4g + 3, in each of them: first of lanes two apart, then of
// neighbours. Both are commutative, so all four have the same bits.
template <int N, typename Join>
TANDEM_HD void join_quads(Registers<float, N>& registers, int at, const Join& join) {
#ifdef __CUDA_ARCH__
  float& value = registers.values[at];
  value = join(value, __shfl_xor_sync(0xffffffffu, value, 2));
  value = join(value, __shfl_xor_sync(0xffffffffu, value, 1));
#else
  for (int lane = 0; lane < kWarp; lane += 4) {
    const auto value = [&](int t) -> float& { return registers.at(lane + t, at); };
    const float even = join(value(0), value(2)), odd = join(value(1), value(3));
    for (int t = 0; t < 4; ++t) value(t) = join(even, odd);
  }
#endif
}

// The same over each `width` lanes in a row, a power of two, by what does not depend on an order.
template <int N, typename Join>
TANDEM_HD void join_lanes(Registers<float, N>& registers, int at, int width, const Join& join) {
#ifdef __CUDA_ARCH__
  float& value = registers.values[at];
  for (int apart = width / 2; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, apart));
#else
  for (int first = 0; first < kWarp; first += width) {
    float joined = registers.at(first, at);
    for (int lane = first + 1; lane < first + width; ++lane) joined = join(joined, registers.at(lane, at));
    for (int lane = first; lane < first + width; ++lane) registers.at(lane, at) = joined;
  }
#endif
}

// 16 bytes from device memory to shared memory, both at multiples of 16 bytes; of them `bytes` are read, the rest is 0.
// What was asked for is there once wait_for_copies has passed in the thread that asked, and for others a barrier later.
TANDEM_HD void copy_async(void* shared, const void* from, int bytes) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(from), "r"(bytes)
      : "memory");
#else
  memset(shared, 0, 16);
  if (bytes > 0) memcpy(shared, from, static_cast<size_t>(bytes));
#endif
}
// What was asked for since the last call is a group.
TANDEM_HD void end_of_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until all groups but the newest `Pending` are there.
template <int Pending>
TANDEM_HD void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}
// What lanes of a warp wrote to shared memory, other lanes of it read from here on.
TANDEM_HD void end_of_warp_writes() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}

}  // namespace tandem::kernels::cuda
