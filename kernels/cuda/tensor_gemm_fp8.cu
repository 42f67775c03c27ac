// Products of E4M3 with a scale for each 1 x 128 of A and each 128 x 128 of B by wgmma, whose accumulator keeps 14
// bits: after 128 of k its sum is scaled and added to one in fp32.
//
// While the tensor cores multiply a block of k, the threads add the one before: a warpgroup has two sets of sums under
// way. The order of additions is that of k, for any tile, grid or shape.
#include "kernels/cuda/hopper.cuh"

namespace tandem::kernels::cuda {

namespace {

constexpr int kTileRows = 128, kTileColumns = 128, kDepth = kSwizzle, kStages = 6;
using Fp8Tiles = Tiles<kTileRows, kTileColumns>;

struct Fp8Scales {
  const uint8_t *a, *b;  // E8M0: [m][blocks of k], [blocks of n][blocks of k]
  int64_t blocks;        // of k
};

#ifdef TANDEM_HAS_WGMMA

using Fp8Ring = Ring<kStages, kTileRows, kTileColumns>;
constexpr int kSums = 64;  // of a thread: 64 x 128 of a warpgroup

#define TANDEM_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TANDEM_SUMS_16(i) TANDEM_SUMS_4(i), TANDEM_SUMS_4(i + 4), TANDEM_SUMS_4(i + 8), TANDEM_SUMS_4(i + 12)
// clang-format off
__device__ __forceinline__ void multiply(float (&sums)[kSums], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1;\n\t}"
      : TANDEM_SUMS_16(0), TANDEM_SUMS_16(16), TANDEM_SUMS_16(32), TANDEM_SUMS_16(48)
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(adds)));
}
// clang-format on
#undef TANDEM_SUMS_4
#undef TANDEM_SUMS_16

// Products of one block of k that are under way, with the scales of the thread's two rows.
struct Block {
  float sums[kSums];
  float upper, lower;
  int stage;

  __device__ __forceinline__ void start(Fp8Ring& ring, Position<kStages>& at, int warpgroup, const uint8_t* of_upper,
                                        const uint8_t* of_lower, const uint8_t* of_columns, int64_t block) {
    const float columns = from_e8m0(of_columns[block]);
    upper = from_e8m0(of_upper[block]) * columns;
    lower = from_e8m0(of_lower[block]) * columns;
    stage = at.stage;
    wait_for(&ring.full[stage], at.parity);
    const uint64_t a = descriptor(ring.a[stage] + warpgroup * 64 * kSwizzle), b = descriptor(ring.b[stage]);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / kTensorTermsE4m3; ++step)
      multiply(sums, a + step * kAlong, b + step * kAlong, step > 0);
    commit_products();
    at.next();
  }
  // Its products are done.
  __device__ __forceinline__ void add_to(float (&total)[kSums], Fp8Ring& ring, int thread) const {
    if (thread == 0) arrive(&ring.empty[stage]);
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      total[i] = fmaf(sums[i], upper, total[i]);
      total[i + 1] = fmaf(sums[i + 1], upper, total[i + 1]);
      total[i + 2] = fmaf(sums[i + 2], lower, total[i + 2]);
      total[i + 3] = fmaf(sums[i + 3], lower, total[i + 3]);
    }
  }
};

__device__ void multiply_all(const Fp8Tiles& tiles, const Fp8Scales& scales, const ProductTarget& to, Fp8Ring& ring,
                             int warpgroup, int thread) {
  Position<kStages> at{.parity = 0};
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const auto tile_place = tiles.place(tile);
    const ThreadPlace place(tile_place, warpgroup, thread);
    // Rows beyond the matrix are read as the last, and not stored.
    const uint8_t* const of_upper = scales.a + min(place.row, to.m - 1) * scales.blocks;
    const uint8_t* const of_lower = scales.a + min(place.row + 8, to.m - 1) * scales.blocks;
    const uint8_t* const of_columns = scales.b + tile_place.column / kTileColumns * scales.blocks;
    float total[kSums];
#pragma unroll
    for (float& sum : total) sum = 0;
    Block even, odd;
    const auto start = [&](Block& block, int64_t number) {
      block.start(ring, at, warpgroup, of_upper, of_lower, of_columns, number);
    };
    start(even, 0);
    int64_t next = 1;
    for (; next + 1 < scales.blocks; next += 2) {
      start(odd, next);
      wait_for_products<1>();
      even.add_to(total, ring, thread);
      start(even, next + 1);
      wait_for_products<1>();
      odd.add_to(total, ring, thread);
    }
    if (next < scales.blocks) {
      start(odd, next);
      wait_for_products<1>();
      even.add_to(total, ring, thread);
      wait_for_products<0>();
      odd.add_to(total, ring, thread);
    } else {
      wait_for_products<0>();
      even.add_to(total, ring, thread);
    }
    place.store(to, total);
  }
}

#endif

__global__ void __launch_bounds__(kProductThreads, 1)
    tensor_gemm_fp8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                    const __grid_constant__ Fp8Scales scales, const __grid_constant__ ProductTarget to, int k) {
#ifdef TANDEM_HAS_WGMMA
  extern __shared__ uint8_t shared[];
  auto& ring = ring_in<Fp8Ring>(shared);
  const Fp8Tiles tiles{to.m, to.n};
  divide_work(
      ring, [&] { ring.fill(tiles, a, b, k, kDepth); },
      [&](int warpgroup, int thread) { multiply_all(tiles, scales, to, ring, warpgroup, thread); });
#else
  (void)a, (void)b, (void)scales, (void)to, (void)k;
#endif
}

}  // namespace

int Launch::run_tensor_gemm(const TandemCudaTensorGemmFp8& g) const {
  CUtensorMap a, b;
  if (!describe(g.a, g.m, g.k, g.k, kTileRows, a) || !describe(g.b, g.n, g.k, g.k, kTileColumns, b))
    return code_of(cudaErrorNotSupported);
  const ProductTarget to{g.out, g.out_float, g.out_stride, g.m, g.n};
  const Fp8Scales scales{g.a_scales, g.b_scales, pieces(g.k, kDepth)};
  return start_persistent<tensor_gemm_fp8>(stream_, Fp8Tiles{g.m, g.n}.count(),
                                           ring_bytes(kStages, kTileRows, kTileColumns), a, b, scales, to, g.k);
}

}  // namespace tandem::kernels::cuda
