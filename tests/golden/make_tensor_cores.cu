// Records what tensor core instructions of a Hopper GPU make of random numbers: tensor_cores.bin.
//   nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -o make_tensor_cores tests/golden/make_tensor_cores.cu
//   ./make_tensor_cores tests/golden/tensor_cores.bin
// The file: for each of mma.sync bf16, wgmma bf16, wgmma e4m3, kTiles tiles of A [16][32 bytes], B [8][32 bytes],
// C [16][8] and the result D [16][8] in fp32. Rows of A and B are along K. Four tiles of wgmma have one B.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

constexpr int kTiles = 32, kBytes = 32;

struct Tile {
  uint8_t a[16 * kBytes], b[8 * kBytes];
  float c[128], d[128];
};

#define CHECK(call)                                                \
  if (const cudaError_t error = (call)) {                          \
    fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
    exit(1);                                                       \
  }

__device__ uint32_t word(const uint8_t* at) { return *reinterpret_cast<const uint32_t*>(at); }

struct Fragment {
  uint32_t a[4];
  float d[4];
  __device__ Fragment(const Tile& tile, int group, int thread) {
    for (int i = 0; i < 4; ++i) a[i] = word(tile.a + (group + i % 2 * 8) * kBytes + i / 2 * 16 + 4 * thread);
    for (int i = 0; i < 4; ++i) d[i] = tile.c[(group + i / 2 * 8) * 8 + 2 * thread + i % 2];
  }
  __device__ void store(Tile& tile, int group, int thread) const {
    for (int i = 0; i < 4; ++i) tile.d[(group + i / 2 * 8) * 8 + 2 * thread + i % 2] = d[i];
  }
};

__global__ void mma_bf16(Tile* tiles) {
  Tile& tile = tiles[blockIdx.x];
  const int group = threadIdx.x / 4, thread = threadIdx.x % 4;
  Fragment f(tile, group, thread);
  const uint32_t b0 = word(tile.b + group * kBytes + 4 * thread), b1 = word(tile.b + group * kBytes + 16 + 4 * thread);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(f.d[0]), "+f"(f.d[1]), "+f"(f.d[2]), "+f"(f.d[3])
               : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(b0), "r"(b1));
  f.store(tile, group, thread);
}

// A from registers, B from shared memory without swizzling: two core matrices of 8 rows of 16 bytes.
template <bool E4m3>
__global__ void wgmma(Tile* tiles) {
  __shared__ alignas(128) uint8_t b[8 * kBytes];
  const Tile& first = tiles[blockIdx.x * 4];
  for (int i = threadIdx.x; i < 8 * kBytes; i += 128) b[i % kBytes / 16 * 128 + i / kBytes * 16 + i % 16] = first.b[i];
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  Tile& tile = tiles[blockIdx.x * 4 + threadIdx.x / 32];
  const int group = threadIdx.x % 32 / 4, thread = threadIdx.x % 4;
  Fragment f(tile, group, thread);
  const uint64_t address = __cvta_generic_to_shared(b);
  const uint64_t descriptor = (address & 0x3ffff) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{128 >> 4} << 32;
  asm volatile("wgmma.fence.sync.aligned;");
  if constexpr (E4m3)
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p,1,0; wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3},"
        "{%4,%5,%6,%7},%8,p,1,1;}"
        : "+f"(f.d[0]), "+f"(f.d[1]), "+f"(f.d[2]), "+f"(f.d[3])
        : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "l"(descriptor));
  else
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p,1,0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3},"
        "{%4,%5,%6,%7},%8,p,1,1,0;}"
        : "+f"(f.d[0]), "+f"(f.d[1]), "+f"(f.d[2]), "+f"(f.d[3])
        : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "l"(descriptor));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
  f.store(tile, group, thread);
}

// Exponents of tile `t` spread differently; in some the accumulator is 0, numbers are 0, or halves of K cancel out.
void fill(Tile& tile, int t, bool e4m3, std::mt19937_64& random) {
  const int kind = t / 4;
  const int spread = e4m3 ? (kind % 4 == 0 ? 3 : 15) : (const int[]){2, 8, 20, 40, 12, 30, 6, 60}[kind];
  const auto around = [&](int middle, int wide, int low, int high) {
    const int exponent = middle + static_cast<int>(random() % (2 * wide + 1)) - wide;
    return exponent < low ? low : exponent > high ? high : exponent;
  };
  const auto row = [&](uint8_t* out) {
    for (int i = 0; i < (e4m3 ? 32 : 16); ++i) {
      const bool none = kind == 6 && random() % 3 == 0;
      if (e4m3) {
        uint8_t value = static_cast<uint8_t>(random() % 2 << 7 | around(7, spread, 0, 15) << 3 | random() % 8);
        if ((value & 127) == 127) value -= 1;
        out[i] = none ? 0 : value;
      } else {
        const auto value =
            static_cast<uint16_t>(random() % 2 << 15 | around(127, spread, 1, 254) << 7 | random() % 128);
        const uint16_t stored = none ? 0 : value;
        memcpy(out + 2 * i, &stored, 2);
      }
    }
  };
  for (int i = 0; i < 16; ++i) row(tile.a + i * kBytes);
  for (int i = 0; i < 8; ++i) row(tile.b + i * kBytes);
  for (float& c : tile.c) {
    const int wide = e4m3 ? 16 : 2 * spread;
    const uint32_t bits =
        static_cast<uint32_t>(random() % 2) << 31 | around(127, wide, 1, 254) << 23 | (random() & 0x7fffff);
    const uint32_t stored = kind == 1 || kind == 5 ? 0 : bits;
    memcpy(&c, &stored, 4);
  }
  if (kind != 4) return;
  for (int i = 0; i < 16; ++i) {
    uint8_t* a = tile.a + i * kBytes;
    memcpy(a + 16, a, 16);
    for (int j = e4m3 ? 16 : 17; j < 32; j += e4m3 ? 1 : 2) a[j] ^= 0x80;
  }
  for (int i = 0; i < 8; ++i) {
    uint8_t* b = tile.b + i * kBytes;
    memcpy(b + 16, b, 16);
    b[16] ^= 1;
  }
}

int main(int, char** arguments) {
  FILE* const file = arguments[1] ? fopen(arguments[1], "wb") : nullptr;
  if (!file) return fprintf(stderr, "usage: make_tensor_cores FILE\n"), 2;
  std::mt19937_64 random(7);
  Tile* device = nullptr;
  CHECK(cudaMalloc(&device, kTiles * sizeof(Tile)));
  for (int instruction = 0; instruction < 3; ++instruction) {
    std::vector<Tile> tiles(kTiles);
    for (int t = 0; t < kTiles; ++t) fill(tiles[t], t, instruction == 2, random);
    for (int t = 0; instruction > 0 && t < kTiles; ++t) memcpy(tiles[t].b, tiles[t / 4 * 4].b, sizeof tiles[t].b);
    CHECK(cudaMemcpy(device, tiles.data(), kTiles * sizeof(Tile), cudaMemcpyHostToDevice));
    if (instruction == 0) mma_bf16<<<kTiles, 32>>>(device);
    if (instruction == 1) wgmma<false><<<kTiles / 4, 128>>>(device);
    if (instruction == 2) wgmma<true><<<kTiles / 4, 128>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(tiles.data(), device, kTiles * sizeof(Tile), cudaMemcpyDeviceToHost));
    fwrite(tiles.data(), sizeof(Tile), kTiles, file);
  }
  return fclose(file);
}
