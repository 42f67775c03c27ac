// Products of bf16 by wgmma: TMA brings tiles of A and B into a ring of shared memory, one thread asks for them, and
// two warpgroups multiply what has come, each 64 rows by 256 columns in registers.
//
// Nothing is split along k, and an instruction adds 16 of k to the sum: the order of additions is that of k, for any
// tile, grid or shape.
#include "kernels/cuda/hopper.cuh"

namespace tandem::kernels::cuda {

namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kStages = 4;
using TensorTiles = Tiles<kTileRows, kTileColumns>;

#ifdef TANDEM_HAS_WGMMA

using TensorRing = Ring<kStages, kTileRows, kTileColumns>;
constexpr int kSums = 128;                           // of a thread: 64 x 256 of a warpgroup
constexpr int kDepth = kSwizzle / sizeof(uint16_t);  // of k in a stage

#define TANDEM_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TANDEM_SUMS_16(i) TANDEM_SUMS_4(i), TANDEM_SUMS_4(i + 4), TANDEM_SUMS_4(i + 8), TANDEM_SUMS_4(i + 12)
#define TANDEM_SUMS_64(i) TANDEM_SUMS_16(i), TANDEM_SUMS_16(i + 16), TANDEM_SUMS_16(i + 32), TANDEM_SUMS_16(i + 48)
// clang-format off
__device__ __forceinline__ void multiply(float (&sums)[kSums], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"
      "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"
      "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
      " %128, %129, p, 1, 1, 0, 0;\n\t}"
      : TANDEM_SUMS_64(0), TANDEM_SUMS_64(64)
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(adds)));
}
// clang-format on
#undef TANDEM_SUMS_4
#undef TANDEM_SUMS_16
#undef TANDEM_SUMS_64

__device__ void multiply_all(const TensorTiles& tiles, const ProductTarget& to, int k, TensorRing& ring, int warpgroup,
                             int thread) {
  Position<kStages> at{.parity = 0};
  float sums[kSums];
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    int before = -1;  // stage whose products may still be under way
    for (int first = 0; first < k; first += kDepth, at.next()) {
      wait_for(&ring.full[at.stage], at.parity);
      const uint64_t a = descriptor(ring.a[at.stage] + warpgroup * 64 * kSwizzle), b = descriptor(ring.b[at.stage]);
      begin_products();
#pragma unroll
      for (int step = 0; step < kDepth / kTensorTerms; ++step)
        multiply(sums, a + step * kAlong, b + step * kAlong, first > 0 || step > 0);
      commit_products();
      wait_for_products<1>();
      if (before >= 0 && thread == 0) arrive(&ring.empty[before]);
      before = at.stage;
    }
    wait_for_products<0>();
    if (thread == 0) arrive(&ring.empty[before]);
    ThreadPlace(tiles.place(tile), warpgroup, thread).store(to, sums);
  }
}

#endif

__global__ void __launch_bounds__(kProductThreads, 1)
    tensor_gemm([[maybe_unused]] const __grid_constant__ CUtensorMap a,
                [[maybe_unused]] const __grid_constant__ CUtensorMap b,
                [[maybe_unused]] const __grid_constant__ ProductTarget to, [[maybe_unused]] int k) {
#ifdef TANDEM_HAS_WGMMA
  extern __shared__ uint8_t shared[];
  TensorRing& ring = ring_in<TensorRing>(shared);
  const TensorTiles tiles{to.m, to.n};
  divide_work(
      ring, [&] { ring.fill(tiles, a, b, k, kDepth); },
      [&](int warpgroup, int thread) { multiply_all(tiles, to, k, ring, warpgroup, thread); });
#endif
}

}  // namespace

bool Launch::has_wgmma() const {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream_.device) == cudaSuccess && major == 9;
}

int Launch::run_tensor_gemm(const TandemCudaGemm& g) const {
  CUtensorMap a, b;
  if (!describe(g.a, g.m, g.k, g.a_row_stride, kTileRows, a) ||
      !describe(g.b, g.n, g.k, g.b_row_stride, kTileColumns, b))
    return code_of(cudaErrorNotSupported);
  const ProductTarget to{g.out, g.out_float, g.out_stride, g.m, g.n, g.bias, g.residual, g.accumulate != 0};
  return start_persistent<tensor_gemm>(stream_, TensorTiles{g.m, g.n}.count(),
                                       ring_bytes(kStages, kTileRows, kTileColumns), a, b, to, g.k);
}
int Launch::run_tensor_gemm(const TandemCudaTensorGemm& g) const {
  TandemCudaGemm product{};
  product.a = g.a;
  product.b = g.b;
  product.a_row_stride = product.b_row_stride = g.k;
  product.a_k_stride = product.b_k_stride = 1;
  product.out = g.out;
  product.out_float = g.out_float;
  product.out_stride = g.out_stride;
  product.m = g.m;
  product.n = g.n;
  product.k = g.k;
  return run_tensor_gemm(product);
}

}  // namespace tandem::kernels::cuda
