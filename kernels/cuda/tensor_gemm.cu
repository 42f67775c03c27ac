// Products of bf16 by wgmma: TMA brings tiles of A and B into a ring of shared memory, one thread asks for them, and
// two warpgroups multiply what has come, each 64 rows by 256 columns in registers.
//
// A block goes on to the next tile of the result when it is done with one (a persistent grid); tiles are taken in bands
// of rows, so that those under way at one time share what they read in the L2 cache. Nothing is split along k, and an
// instruction adds 16 of k to the sum: the order of additions is that of k, for any tile, grid or shape.
//
// Facts of the instructions are those of NVIDIA's PTX ISA, version 9.0: "wgmma", "mbarrier", "cp.async.bulk.tensor".
#include <cudaTypedefs.h>

#include "kernels/cuda/launch.cuh"

namespace tandem::kernels::cuda {

namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kTileDepth = 64, kStages = 4;
constexpr int kWarpgroup = 128, kThreads = 3 * kWarpgroup;  // one asks, two multiply

struct Ring {
  alignas(1024) uint16_t a[kStages][kTileRows * kTileDepth];
  alignas(1024) uint16_t b[kStages][kTileColumns * kTileDepth];
  uint64_t full[kStages], empty[kStages];
};
constexpr size_t kSharedBytes = sizeof(Ring) + 1024;  // it begins at a multiple of 1024

struct Problem {
  uint16_t* out;
  float* out_float;
  int64_t out_stride;
  int m, n, k;
  __host__ __device__ int rows_of_tiles() const { return (m + kTileRows - 1) / kTileRows; }
  __host__ __device__ int columns_of_tiles() const { return (n + kTileColumns - 1) / kTileColumns; }
  __host__ __device__ int64_t tiles() const { return static_cast<int64_t>(rows_of_tiles()) * columns_of_tiles(); }
};

// The instructions are those of sm_90a alone; for other devices the kernel is never started.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TANDEM_HAS_WGMMA
#endif

#ifdef TANDEM_HAS_WGMMA

constexpr int kBand = 16;   // tiles of rows that are taken together
constexpr int kSums = 128;  // of a thread: 64 x 256 of a warpgroup
constexpr int kStep = 16;   // of k by one instruction
constexpr uint32_t kStageBytes = (kTileRows + kTileColumns) * kTileDepth * sizeof(uint16_t);

__device__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ void begin_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect_stage(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "n"(kStageBytes)
               : "memory");
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void wait_for(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}
// What lies beyond the matrix comes as 0.
__device__ void bring(uint16_t* to, const CUtensorMap& matrix, int k, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&matrix), "r"(shared_address(barrier)), "r"(k), "r"(row)
      : "memory");
}
// Rows of 128 bytes along k, swizzled by 128 bytes; eight rows are 1024 bytes.
__device__ uint64_t descriptor(const uint16_t* rows) {
  return static_cast<uint64_t>((shared_address(rows) & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

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

struct Place {
  int row, column;  // of the tile's first element
};
__device__ Place place_of(const Problem& p, int64_t tile) {
  const int columns = p.columns_of_tiles();
  const int64_t band = tile / (kBand * columns), first = band * kBand, within = tile - first * columns;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kBand), p.rows_of_tiles() - first));
  return {static_cast<int>(first + within % rows) * kTileRows, static_cast<int>(within / rows) * kTileColumns};
}

// Where a thread is in the ring.
struct Position {
  int stage = 0;
  uint32_t parity;
  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

__device__ void bring_all(const Problem& p, const CUtensorMap& a, const CUtensorMap& b, Ring& ring) {
  Position at{.parity = 1};  // the first round finds every stage empty
  for (int64_t tile = blockIdx.x; tile < p.tiles(); tile += gridDim.x) {
    const Place place = place_of(p, tile);
    for (int k = 0; k < p.k; k += kTileDepth, at.next()) {
      wait_for(&ring.empty[at.stage], at.parity);
      expect_stage(&ring.full[at.stage]);
      bring(ring.a[at.stage], a, k, place.row, &ring.full[at.stage]);
      bring(ring.b[at.stage], b, k, place.column, &ring.full[at.stage]);
    }
  }
}

__device__ void store(const Problem& p, int row, int column, float value) {
  if (row >= p.m || column >= p.n) return;
  if (p.out)
    p.out[row * p.out_stride + column] = to_bf16_bits(value);
  else
    p.out_float[row * p.out_stride + column] = value;
}
// Two columns next to each other, at once where they lie in one word.
__device__ void store_pair(const Problem& p, int row, int column, float first, float second) {
  uint16_t* const to = p.out + row * p.out_stride + column;
  if (p.out && row < p.m && column + 1 < p.n && reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0) {
    *reinterpret_cast<uint32_t*>(to) = to_bf16_bits(first) | static_cast<uint32_t>(to_bf16_bits(second)) << 16;
    return;
  }
  store(p, row, column, first);
  store(p, row, column + 1, second);
}

__device__ void multiply_all(const Problem& p, Ring& ring, int warpgroup, int thread) {
  Position at{.parity = 0};
  float sums[kSums];
  for (int64_t tile = blockIdx.x; tile < p.tiles(); tile += gridDim.x) {
    int before = -1;  // stage whose products may still be under way
    for (int k = 0; k < p.k; k += kTileDepth, at.next()) {
      wait_for(&ring.full[at.stage], at.parity);
      const uint64_t a = descriptor(ring.a[at.stage] + warpgroup * 64 * kTileDepth), b = descriptor(ring.b[at.stage]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int step = 0; step < kTileDepth / kStep; ++step) {
        constexpr int kAlong = kStep * sizeof(uint16_t) >> 4;  // in units of a descriptor's address
        multiply(sums, a + step * kAlong, b + step * kAlong, k > 0 || step > 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (before >= 0 && thread == 0) arrive(&ring.empty[before]);
      before = at.stage;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (thread == 0) arrive(&ring.empty[before]);
    const Place place = place_of(p, tile);
    const int row = place.row + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4;
    const int column = place.column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      store_pair(p, row, column + 2 * i, sums[i], sums[i + 1]);
      store_pair(p, row + 8, column + 2 * i, sums[i + 2], sums[i + 3]);
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads, 1)
    tensor_gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                const __grid_constant__ Problem p) {
#ifdef TANDEM_HAS_WGMMA
  extern __shared__ uint8_t shared[];
  Ring& ring = *reinterpret_cast<Ring*>((reinterpret_cast<uintptr_t>(shared) + 1023) & ~uintptr_t{1023});
  const int warpgroup = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      begin_barrier(&ring.full[i], 1);
      begin_barrier(&ring.empty[i], 2);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  // 64 Ki registers among 384 threads: those that multiply need more.
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) bring_all(p, a, b, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_all(p, ring, warpgroup - 1, thread);
  }
#else
  (void)a, (void)b, (void)p;
#endif
}

// The driver's, which this library does not link.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess
             ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found)
             : nullptr;
}

// Of [rows][k] in boxes of `box_rows` rows and kTileDepth of k.
bool describe(const uint16_t* values, int rows, int k, int box_rows, CUtensorMap& map) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(k) * sizeof(uint16_t)};
  const cuuint32_t box[] = {kTileDepth, static_cast<cuuint32_t>(box_rows)}, every[] = {1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<uint16_t*>(values), sizes, strides, box, every,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool Launch::has_wgmma() const {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream_.device) == cudaSuccess && major == 9;
}

int Launch::run_tensor_gemm(const TandemCudaTensorGemm& g) const {
  const Problem problem{g.out, g.out_float, g.out_stride, g.m, g.n, g.k};
  CUtensorMap a, b;
  if (!describe(g.a, g.m, g.k, kTileRows, a) || !describe(g.b, g.n, g.k, kTileColumns, b)) return kTandemCudaShape;
  int processors = 0;
  if (const int code = code_of(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, stream_.device)))
    return code;
  if (const int code = code_of(cudaFuncSetAttribute(tensor_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(kSharedBytes))))
    return code;
  const auto blocks = static_cast<unsigned>(min(problem.tiles(), static_cast<int64_t>(processors)));
  tensor_gemm<<<blocks, kThreads, kSharedBytes, stream_.stream>>>(a, b, problem);
  return code_of(cudaGetLastError());
}

}  // namespace tandem::kernels::cuda
