// What kernels for Hopper have in common: tiles brought by TMA into a ring of stages, descriptors of wgmma, the work of
// a block's warpgroups, and the order in which a persistent grid takes tiles.
//
// Facts of the instructions are those of NVIDIA's PTX ISA, version 9.0: "mbarrier", "cp.async.bulk.tensor", "wgmma".
#pragma once

#include <cudaTypedefs.h>

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_gemm.cuh"

// The instructions are those of sm_90a alone; for other devices kernels that use them are empty, and never started.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TANDEM_HAS_WGMMA
#endif

namespace tandem::kernels::cuda {

constexpr int kWarpgroup = 128, kProductThreads = 3 * kWarpgroup;
constexpr int kSwizzle = 128;      // bytes of a row of a tile, along k
constexpr size_t kAligned = 1024;  // where swizzled tiles begin

// The result in tiles, taken in bands of rows: those under way at one time share what they read in the L2 cache.
template <int Rows, int Columns>
struct Tiles {
  static constexpr int kBand = 16;
  int m, n;
  struct Place {
    int row, column;  // of the tile's first element
  };
  TANDEM_HD int down() const { return (m + Rows - 1) / Rows; }
  TANDEM_HD int across() const { return (n + Columns - 1) / Columns; }
  TANDEM_HD int64_t count() const { return static_cast<int64_t>(down()) * across(); }
  TANDEM_HD Place place(int64_t tile) const {
    const int64_t band = tile / (kBand * across()), first = band * kBand, within = tile - first * across();
    const int64_t left = down() - first, rows = left < kBand ? left : kBand;
    return {static_cast<int>(first + within % rows) * Rows, static_cast<int>(within / rows) * Columns};
  }
};

// Of [rows][k], `row_stride` elements from row to row, in boxes of `box_rows` rows and kSwizzle bytes of k; what lies
// beyond the matrix is brought as 0. By the driver's encoder, which this library does not link. False where that cannot
// be had or refuses.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = []() -> PFN_cuTensorMapEncodeTiled_v12000 {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found)
               : nullptr;
  }();
  return encoder;
}
template <typename T>
bool describe(const T* values, int rows, int k, int64_t row_stride, int box_rows, CUtensorMap& map) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride) * sizeof(T)};
  const cuuint32_t box[] = {kSwizzle / sizeof(T), static_cast<cuuint32_t>(box_rows)}, every[] = {1, 1};
  const auto type = sizeof(T) == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return encode(&map, type, 2, const_cast<T*>(values), sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Starts the kernel on as many blocks as the device has processors, or as there are tiles.
template <auto kKernel, typename... Arguments>
int start_persistent(const TandemCudaStreamState& stream, int64_t tiles, size_t shared_bytes,
                     const Arguments&... arguments) {
  int processors = 0;
  if (const int code = code_of(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, stream.device)))
    return code;
  if (const int code = allow_shared_memory<kKernel>(stream.device, shared_bytes)) return code;
  const auto blocks = static_cast<unsigned>(tiles < processors ? tiles : processors);
  kKernel<<<blocks, kProductThreads, shared_bytes, stream.stream>>>(arguments...);
  return code_of(cudaGetLastError());
}

#ifdef TANDEM_HAS_WGMMA

__device__ inline void bring(void* to, const CUtensorMap& matrix, int k, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&matrix), "r"(shared_address(barrier)), "r"(k), "r"(row)
      : "memory");
}

// Rows of 128 bytes along k, swizzled by 128 bytes; eight rows are 1024 bytes.
__device__ inline uint64_t descriptor(const void* rows) {
  return static_cast<uint64_t>((shared_address(rows) & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
constexpr int kAlong = 32 >> 4;  // from an instruction's k to the next, in units of a descriptor's address

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the newest `Pending` groups are done.
template <int Pending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Where a thread is in a ring of stages. Who fills begins with parity 1: the first round finds every stage empty.
template <int Stages>
struct Position {
  uint32_t parity;
  int stage = 0;
  __device__ void next() {
    if (++stage < Stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// A ring of tiles of both sides, with room for `Stages`.
template <int Stages, int RowsOfA, int RowsOfB>
struct Ring {
  uint8_t a[Stages][RowsOfA * kSwizzle];
  uint8_t b[Stages][RowsOfB * kSwizzle];
  uint64_t full[Stages], empty[Stages];

  // By one thread, before all others go on.
  __device__ void begin(int takers) {
    for (int i = 0; i < Stages; ++i) {
      begin_barrier(&full[i], 1);
      begin_barrier(&empty[i], takers);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // By one thread: all tiles that this block multiplies; `elements` of k in a stage.
  template <typename T>
  __device__ void fill(const T& tiles, const CUtensorMap& of_a, const CUtensorMap& of_b, int k, int elements) {
    Position<Stages> at{.parity = 1};
    for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
      const auto place = tiles.place(tile);
      for (int first = 0; first < k; first += elements, at.next()) {
        wait_for(&empty[at.stage], at.parity);
        expect_bytes(&full[at.stage], (RowsOfA + RowsOfB) * kSwizzle);
        bring(a[at.stage], of_a, first, place.row, &full[at.stage]);
        bring(b[at.stage], of_b, first, place.column, &full[at.stage]);
      }
    }
  }
};
template <typename R>
__device__ R& ring_in(uint8_t* shared) {
  return *reinterpret_cast<R*>((reinterpret_cast<uintptr_t>(shared) + kAligned - 1) & ~uintptr_t{kAligned - 1});
}

// One warpgroup asks for tiles, by one thread; two multiply. 64 Ki registers among 384 threads: those need more.
template <typename R, typename Fill, typename Multiply>
__device__ void divide_work(R& ring, const Fill& fill, const Multiply& multiply) {
  const int warpgroup = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) ring.begin(2);
  __syncthreads();
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) fill();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply(warpgroup - 1, thread);
  }
}

// Where a thread's sums of a warpgroup's 64 rows begin: its row (and the eighth below it) and its first column.
struct ThreadPlace {
  int row, column;
  template <typename Place>
  __device__ ThreadPlace(const Place& tile, int warpgroup, int thread)
      : row(tile.row + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4), column(tile.column + thread % 4 * 2) {}
  template <typename Target, int Sums>
  __device__ __forceinline__ void store(const Target& to, const float (&sums)[Sums]) const {
#pragma unroll
    for (int i = 0; i < Sums; i += 4) {
      to.put_pair(row, column + 2 * i, sums[i], sums[i + 1]);
      to.put_pair(row + 8, column + 2 * i, sums[i + 2], sums[i + 3]);
    }
  }
};

#endif

// Bytes of shared memory for a ring wherever that begins.
constexpr size_t ring_bytes(int stages, int rows_of_a, int rows_of_b) {
  return stages * (static_cast<size_t>(rows_of_a + rows_of_b) * kSwizzle + 2 * sizeof(uint64_t)) + kAligned;
}

// Where a product goes: to one of the two; and what is added before, as in tandem_cuda_gemm.
struct ProductTarget {
  uint16_t* out;
  float* out_float;
  int64_t stride;
  int m, n;
  const uint16_t* bias = nullptr;
  const uint16_t* residual = nullptr;
  bool accumulate = false;

  TANDEM_HD float finished(int row, int column, float value) const {
    if (bias) value = value + from_bf16(bias[column]);
    if (residual) value = value + from_bf16(residual[row * stride + column]);
    if (accumulate) value = out_float[row * stride + column] + value;
    return value;
  }
  TANDEM_HD void put(int row, int column, float value) const {
    if (row >= m || column >= n) return;
    value = finished(row, column, value);
    if (out)
      out[row * stride + column] = to_bf16_bits(value);
    else
      out_float[row * stride + column] = value;
  }
  // Two columns next to each other, at once where they lie in one word.
  TANDEM_HD void put_pair(int row, int column, float first, float second) const {
    uint16_t* const to = out + row * stride + column;
    if (out && row < m && column + 1 < n && reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0) {
      *reinterpret_cast<uint32_t*>(to) =
          pair_of_bf16(to_bf16_bits(finished(row, column, first)), to_bf16_bits(finished(row, column + 1, second)));
      return;
    }
    put(row, column, first);
    put(row, column + 1, second);
  }
};

}  // namespace tandem::kernels::cuda
