// Products of MXFP8 by the block-scaled tensor cores of compute capability 10.0: tcgen05.mma.kind::mxf8f6f4.
//
// A block of 128 threads computes a tile. Codes and scales of 128 of k are written to shared memory; one thread has the
// scales copied to tensor memory and starts four products of depth 32, each of which adds to the tile there; all wait
// for them, and go on with the next. So an element takes its blocks of k in order, whatever its row, tile or grid. One
// stage, no overlap: this is the arithmetic, not the speed, of these tensor cores.
#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/launch.cuh"

namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 128;

// The instructions are those of sm_100a alone; for other devices the kernel is never started.
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
#define TANDEM_HAS_TCGEN05
#endif

#ifdef TANDEM_HAS_TCGEN05
constexpr int kWarp = 32;
// Columns of tensor memory: the tile, then both sides' scales, four columns each.
constexpr uint32_t kScalesOfA = kMxSide, kScalesOfB = kMxSide + 4, kTensorColumns = 256;

// By one whole warp.
__device__ void allocate(uint32_t* address) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(address)),
               "n"(kTensorColumns)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}
__device__ void release(uint32_t address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(kTensorColumns));
}

__device__ void copy_scales(uint32_t to, const uint8_t* from) {
  const uint64_t rows = matrix_descriptor(shared_address(from), 0, kCore);
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(rows) : "memory");
}
__device__ void multiply(uint32_t tile, uint64_t a, uint64_t b, uint32_t block, bool adds) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %6, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p;\n\t}" ::"r"(
          tile),
      "l"(a), "l"(b), "r"(mxfp8_instruction(block)), "r"(tile + kScalesOfA), "r"(tile + kScalesOfB),
      "r"(static_cast<uint32_t>(adds))
      : "memory");
}

// By one thread: scales, then four products; the barrier is passed when they are done.
__device__ void multiply_stage(const Mxfp8Stage& stage, uint32_t tile, bool first, uint64_t* barrier) {
  copy_scales(tile + kScalesOfA, stage.a_scales);
  copy_scales(tile + kScalesOfB, stage.b_scales);
  for (uint32_t block = 0; block < kMxDepth / kMxInstruction; ++block) {
    const uint32_t along = block * kMxInstruction / kCoreBytes * kNextAlongK;
    multiply(tile, matrix_descriptor(shared_address(stage.a) + along, kNextAlongK, kNextRows),
             matrix_descriptor(shared_address(stage.b) + along, kNextAlongK, kNextRows), block, !first || block > 0);
  }
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(barrier))
      : "memory");
}

// Eight columns of this thread's row of the tile.
__device__ void read_columns(uint32_t from, float (&sums)[8]) {
  uint32_t bits[8];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3]), "=r"(bits[4]), "=r"(bits[5]),
                 "=r"(bits[6]), "=r"(bits[7])
               : "r"(from));
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  for (int i = 0; i < 8; ++i) sums[i] = float_of(bits[i]);
}
#endif

__global__ void __launch_bounds__(kThreads) block_scaled(const __grid_constant__ Mxfp8Problem p) {
#ifdef TANDEM_HAS_TCGEN05
  __shared__ Mxfp8Stage stage;
  __shared__ uint64_t barrier;
  __shared__ uint32_t tensor_memory;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const Mxfp8Tile at = mxfp8_tile(p, blockIdx.x);
  if (at.group < 0) return;
  const Mxfp8Rows rows = p.group(at.group);
  if (warp == 0) allocate(&tensor_memory);
  if (thread == 0) {
    begin_barrier(&barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t tile = tensor_memory;

  const int stages = static_cast<int>(pieces(p.k, kMxDepth));
  for (int i = 0; i < stages; ++i) {
    mxfp8_fill(rows.a, rows.a_scales, rows.rows, p.k, at.first_row, i * kMxDepth, thread, kThreads, stage.a,
               stage.a_scales);
    mxfp8_fill(rows.b, rows.b_scales, p.n, p.k, at.first_column, i * kMxDepth, thread, kThreads, stage.b,
               stage.b_scales);
    // What threads have written is read by the tensor cores.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (thread == 0) {
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      multiply_stage(stage, tile, i == 0, &barrier);
    }
    wait_for(&barrier, i % 2);
  }
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

  // A warp reads the 32 rows of its own.
  const int row = at.first_row + thread;
  for (int column = 0; column < kMxSide; column += 8) {
    float sums[8] = {};
    if (stages > 0) read_columns(tile + (static_cast<uint32_t>(warp * kWarp) << 16) + column, sums);
    for (int i = 0; i < 8; ++i) {
      const int to = at.first_column + column + i;
      if (row < rows.rows && to < p.n) p.put(rows.first + row, to, sums[i]);
    }
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (warp == 0) release(tile);
#else
  (void)p;
#endif
}

}  // namespace

bool Launch::has_block_scaling() const {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream_.device) == cudaSuccess &&
         major == 10;
}

int Launch::run_block_scaled(const Mxfp8Problem& problem) const {
  const int64_t tiles = mxfp8_tiles(problem);
  if (tiles > kMostBlocks) return kTandemCudaSize;
  if (tiles == 0) return kTandemCudaOk;
  block_scaled<<<static_cast<unsigned>(tiles), kThreads, 0, stream_.stream>>>(problem);
  return code_of(cudaGetLastError());
}

}  // namespace tandem::kernels::cuda
