// The model of tensor cores beside what an H200 was seen to do.
#include "kernels/reference/tensor_cores.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/file.h"

namespace tandem::kernels::reference {
namespace {

constexpr int kTiles = 32, kRows = 16, kColumns = 8, kBytes = 32;
struct Tile {
  uint8_t a[kRows][kBytes], b[kColumns][kBytes];
  float c[kRows][kColumns], d[kRows][kColumns];
};

// As tests/golden/make_tensor_cores.cu recorded them, one instruction behind the other.
std::vector<Tile> recorded(int instruction) {
  const auto bytes = read_file(TANDEM_SOURCE_DIR "/tests/golden/tensor_cores.bin");
  std::vector<Tile> tiles(kTiles);
  EXPECT_TRUE(bytes && bytes->size() == 3 * kTiles * sizeof(Tile));
  if (bytes && bytes->size() == 3 * kTiles * sizeof(Tile))
    std::memcpy(tiles.data(), bytes->data() + instruction * kTiles * sizeof(Tile), kTiles * sizeof(Tile));
  return tiles;
}

template <typename T>
void expect_recorded_bits(const TensorCore& core, int instruction) {
  const auto row = [&](const uint8_t* bytes) {
    std::vector<T> values(core.terms);
    std::memcpy(values.data(), bytes, kBytes);
    return values;
  };
  int results = 0;
  for (const Tile& tile : recorded(instruction)) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        const std::vector<T> a = row(tile.a[i]), b = row(tile.b[j]);
        const float sum = tensor_core_sum<T>(core, a, b, tile.c[i][j]);
        ASSERT_EQ(sum, tile.d[i][j]) << "element " << i << ", " << j << " of the tile before " << results;
        results += tile.d[i][j] != 0;
      }
    }
  }
  EXPECT_GT(results, kTiles * kRows * kColumns / 2);
}

TEST(TensorCores, mma_of_bf16_has_the_bits_of_an_h200) { expect_recorded_bits<bf16>(kHopperBf16, 0); }
TEST(TensorCores, wgmma_of_bf16_has_the_bits_of_an_h200) { expect_recorded_bits<bf16>(kHopperBf16, 1); }
TEST(TensorCores, wgmma_of_e4m3_has_the_bits_of_an_h200) { expect_recorded_bits<e4m3>(kHopperE4m3, 2); }

}  // namespace
}  // namespace tandem::kernels::reference
