// Products of MXFP8 against their definition, and the tile of the tensor cores against what the PTX ISA says that these
// read: descriptors are taken apart here as the hardware takes them.
#include <cmath>

#include "kernels/cuda/mxfp8.cuh"
#include "kernels/quantize.h"
#include "kernels/reference/mxfp8.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// Rows that the tile divides and others, a k that ends within a block, one that is shorter than a stage.
struct Shape {
  int m, n, k;
};
constexpr Shape kShapes[] = {{3, 5, 32}, {70, 65, 200}, {130, 129, 300}, {1, 1, 7}};

struct Quantized {
  std::vector<e4m3> codes;
  std::vector<e8m0> scales;
  int rows, k;
  Quantized(int row_count, int depth, uint64_t seed)
      : codes(static_cast<size_t>(row_count) * depth),
        scales(row_count * scale_blocks(depth, kMicroscaleBlock)),
        rows(row_count),
        k(depth) {
    Stream cpu = std::move(*Stream::cpu(1, Isa::kAvx2));
    auto x = random_bf16(codes.size(), seed);
    // Magnitudes that differ from block to block.
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = to_bf16(std::ldexp(to_float(x[i]), static_cast<int>(i / 32 * 7 % 23) - 11));
    EXPECT_TRUE(quantize(cpu, {.x = x.data(),
                               .stride = static_cast<size_t>(k),
                               .by_row = codes.data(),
                               .row_scales = scales.data(),
                               .rows = rows,
                               .columns = k,
                               .block = kMicroscaleBlock}));
  }
  std::span<const e4m3> row(int i) const { return std::span(codes).subspan(static_cast<size_t>(i) * k, k); }
  std::span<const e8m0> scales_of(int i) const {
    const size_t blocks = scale_blocks(k, kMicroscaleBlock);
    return std::span(scales).subspan(i * blocks, blocks);
  }
};
const uint8_t* place(Machine& machine, const std::vector<e4m3>& values) {
  return reinterpret_cast<const uint8_t*>(machine.place(values));
}
const uint8_t* place(Machine& machine, const std::vector<e8m0>& values) {
  return reinterpret_cast<const uint8_t*>(machine.place(values));
}

std::vector<float> product_on(Machine& machine, const Quantized& a, const Quantized& b) {
  const TandemCudaMxfp8Gemm g{.a = place(machine, a.codes),
                              .a_scales = place(machine, a.scales),
                              .b = place(machine, b.codes),
                              .b_scales = place(machine, b.scales),
                              .out_float = machine.room<float>(static_cast<size_t>(a.rows) * b.rows),
                              .out_stride = b.rows,
                              .m = a.rows,
                              .n = b.rows,
                              .k = a.k};
  EXPECT_EQ(machine.run(g), 0);
  return machine.fetch(g.out_float, static_cast<size_t>(a.rows) * b.rows);
}
float defined(const Quantized& a, int row, const Quantized& b, int column) {
  return reference::mxfp8_element(a.row(row), a.scales_of(row), b.row(column), b.scales_of(column));
}

TEST(CudaHost, products_of_mxfp8_are_those_of_their_definition) {
  HostMachine machine;
  for (const auto& [m, n, k] : kShapes) {
    const Quantized a(m, k, 1), b(n, k, 2);
    const auto got = product_on(machine, a, b);
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) ASSERT_EQ(got[row * n + column], defined(a, row, b, column));
    }
  }
}

const std::vector<int32_t> kOffsets = {0, 0, 1, 70};
Bytes mxfp8_case(Machine& machine) {
  Bytes bytes;
  for (const auto& [m, n, k] : kShapes) append(bytes, product_on(machine, Quantized(m, k, 1), Quantized(n, k, 2)));
  const Quantized a(70, 200, 1), b(3 * 65, 200, 2);  // three weights, one after the other
  const TandemCudaMxfp8GroupedGemm g{.a = place(machine, a.codes),
                                     .a_scales = place(machine, a.scales),
                                     .offsets = machine.place(kOffsets),
                                     .b = place(machine, b.codes),
                                     .b_scales = place(machine, b.scales),
                                     .out = machine.room<uint16_t>(70 * 65),
                                     .out_stride = 65,
                                     .groups = 3,
                                     .m = 70,
                                     .n = 65,
                                     .k = 200};
  EXPECT_EQ(machine.run(g), 0);
  append(bytes, machine.fetch(g.out, 70 * 65));
  return bytes;
}
TEST(CudaHost, mxfp8_does_not_depend_on_the_order_of_threads) { expect_no_order_of_threads(mxfp8_case); }

TEST(CudaHost, products_of_mxfp8_by_group_are_those_with_the_weight_of_the_group) {
  HostMachine machine;
  const Bytes all = mxfp8_case(machine);
  const Quantized a(70, 200, 1), b(3 * 65, 200, 2);
  std::vector<bf16> expected(70 * 65);
  for (int row = 0; row < 70; ++row) {
    for (int column = 0; column < 65; ++column) {
      expected[row * 65 + column] = to_bf16(defined(a, row, b, (row < 1 ? 1 : 2) * 65 + column));
    }
  }
  Bytes bytes;
  append(bytes, expected);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), all.end() - bytes.size()));
}

// Tensor cores may keep fewer bits of a sum than fp32 has: within what 2^-12 of the terms' sizes allows.
TEST(CudaDevice, products_of_mxfp8_are_near_their_definition) {
  auto device = DeviceMachine::find();
  if (!device) GTEST_SKIP() << device.error().to_string();
  for (const auto& [m, n, k] : kShapes) {
    const Quantized a(m, k, 1), b(n, k, 2);
    const auto got = product_on(**device, a, b);
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        double sizes = 0;
        for (int i = 0; i < k; ++i) {
          sizes += std::abs(static_cast<double>(to_float(a.row(row)[i])) * to_float(a.scales_of(row)[i / 32]) *
                            to_float(b.row(column)[i]) * to_float(b.scales_of(column)[i / 32]));
        }
        ASSERT_NEAR(got[row * n + column], defined(a, row, b, column), sizes * 0x1p-12) << row << " " << column;
      }
    }
  }
}

// Shared memory as the tensor cores see it: bytes at addresses, found by descriptors.
struct SharedMemory {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(1 << 17);
  // Byte (row, byte along k) of a matrix without swizzle, its core matrices 8 rows of 16 bytes.
  uint8_t at(uint64_t descriptor, uint32_t row, uint32_t along_k) const {
    EXPECT_EQ(descriptor >> 46 & 7, 1u) << "the fixed bits";
    EXPECT_EQ(descriptor >> 49, 0u) << "no base offset, no swizzle";
    const auto field = [&](int from) { return static_cast<uint32_t>((descriptor >> from & 0x3fff) << 4); };
    return bytes[field(0) + row / 8 * field(32) + along_k / 16 * field(16) + row % 8 * 16 + along_k % 16];
  }
};
// Tensor memory after tcgen05.cp.32x128b.warpx4: 32 rows of four words each.
std::array<std::array<uint32_t, 4>, 32> copied_scales(const SharedMemory& memory, uint64_t descriptor) {
  std::array<std::array<uint32_t, 4>, 32> lanes{};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t byte = 0; byte < 16; ++byte) {
      lanes[lane][byte / 4] |= static_cast<uint32_t>(memory.at(descriptor, lane, byte)) << (8 * (byte % 4));
    }
  }
  return lanes;
}

TEST(CudaHost, the_tile_of_the_tensor_cores_holds_what_their_descriptors_say) {
  constexpr int kM = 200, kN = 150, kK = 300;
  const Quantized a(kM, kK, 1), b(kN, kK, 2);
  HostMachine machine;
  const Mxfp8Problem problem{place(machine, a.codes),
                             place(machine, a.scales),
                             place(machine, b.codes),
                             place(machine, b.scales),
                             nullptr,
                             nullptr,
                             nullptr,
                             kN,
                             1,
                             kM,
                             kN,
                             kK};
  ASSERT_EQ(mxfp8_tiles(problem), 4);
  for (int64_t index = 0; index < 4; ++index) {
    const Mxfp8Tile tile = mxfp8_tile(problem, index);
    ASSERT_EQ(tile.group, 0);
    std::vector<float> sums(kMxSide * kMxSide, 0);
    for (int first_k = 0; first_k < kK; first_k += kMxDepth) {
      SharedMemory memory;
      constexpr uint32_t kStart = 1024;  // anywhere that is aligned
      auto& stage = *reinterpret_cast<Mxfp8Stage*>(memory.bytes.data() + kStart);
      const auto address = [&](const uint8_t* of) { return static_cast<uint32_t>(of - memory.bytes.data()); };
      for (int thread = 0; thread < 128; ++thread) {
        mxfp8_fill(problem.a, problem.a_scales, kM, kK, tile.first_row, first_k, thread, 128, stage.a, stage.a_scales);
        mxfp8_fill(problem.b, problem.b_scales, kN, kK, tile.first_column, first_k, thread, 128, stage.b,
                   stage.b_scales);
      }
      const auto a_scales = copied_scales(memory, matrix_descriptor(address(stage.a_scales), 0, kCore));
      const auto b_scales = copied_scales(memory, matrix_descriptor(address(stage.b_scales), 0, kCore));
      for (uint32_t block = 0; block < 4; ++block) {
        const uint32_t along = block * kMxInstruction / kCoreBytes * kNextAlongK;
        const uint64_t a_at = matrix_descriptor(address(stage.a) + along, kNextAlongK, kNextRows);
        const uint64_t b_at = matrix_descriptor(address(stage.b) + along, kNextAlongK, kNextRows);
        const uint32_t instruction = mxfp8_instruction(block);
        EXPECT_EQ(instruction >> 17 & 63, 128u / 8) << "n";
        EXPECT_EQ(instruction >> 24 & 31, 128u / 16) << "m";
        EXPECT_EQ(instruction >> 23 & 1, 1u) << "scales in E8M0";
        const uint32_t a_byte = instruction >> 29 & 3, b_byte = instruction >> 4 & 3;
        for (uint32_t row = 0; row < 128; ++row) {
          for (uint32_t column = 0; column < 128; ++column) {
            double products = 0;
            for (uint32_t i = 0; i < 32; ++i) {
              products +=
                  static_cast<double>(from_e4m3(memory.at(a_at, row, i))) * from_e4m3(memory.at(b_at, column, i));
            }
            const double scale = static_cast<double>(from_e8m0(a_scales[row % 32][row / 32] >> (8 * a_byte) & 0xff)) *
                                 from_e8m0(b_scales[column % 32][column / 32] >> (8 * b_byte) & 0xff);
            float& sum = sums[row * 128 + column];
            sum = static_cast<float>(sum + products * scale);
          }
        }
      }
    }
    for (int row = 0; row < kMxSide; ++row) {
      for (int column = 0; column < kMxSide; ++column) {
        const int m = tile.first_row + row, n = tile.first_column + column;
        ASSERT_EQ(sums[row * kMxSide + column], m < kM && n < kN ? defined(a, m, b, n) : 0) << m << " " << n;
      }
    }
  }
}

TEST(CudaHost, tiles_of_groups_cover_every_row_once) {
  const std::vector<int32_t> offsets = {0, 0, 1, 200, 200, 456};
  const std::vector<uint8_t> operands(456 * 32 + 5 * 130 * 32);  // where rows lie is computed, nothing is read
  Mxfp8Problem problem{};
  problem.a = problem.a_scales = problem.b = problem.b_scales = operands.data();
  problem.offsets = offsets.data();
  problem.groups = 5;
  problem.m = 456;
  problem.n = 130;
  problem.k = 32;
  std::vector<int> covered(456 * 2);
  for (int64_t index = 0; index < mxfp8_tiles(problem); ++index) {
    const Mxfp8Tile tile = mxfp8_tile(problem, index);
    if (tile.group < 0) continue;
    const Mxfp8Rows rows = problem.group(tile.group);
    for (int row = tile.first_row; row < std::min(rows.rows, tile.first_row + kMxSide); ++row) {
      ++covered[(rows.first + row) * 2 + tile.first_column / kMxSide];
    }
  }
  EXPECT_EQ(covered, std::vector<int>(456 * 2, 1));
}

TEST(CudaHost, products_of_mxfp8_refuse_what_does_not_go_together) {
  HostMachine machine;
  uint8_t* some = machine.room<uint8_t>(64);
  TandemCudaMxfp8Gemm g{.a = some,
                        .a_scales = some,
                        .b = some,
                        .b_scales = some,
                        .out_float = machine.room<float>(1),
                        .out_stride = 1,
                        .m = 1,
                        .n = 1,
                        .k = 32};
  EXPECT_EQ(machine.run(g), kTandemCudaOk);
  g.out = machine.room<uint16_t>(1);
  EXPECT_EQ(machine.run(g), kTandemCudaShape);
  g.out_float = nullptr;
  g.out_stride = 0;
  EXPECT_EQ(machine.run(g), kTandemCudaStride);
  g.m = -1;
  EXPECT_EQ(machine.run(g), kTandemCudaSize);
  EXPECT_EQ(machine.run(TandemCudaMxfp8GroupedGemm{}), kTandemCudaNull);
}

}  // namespace
}  // namespace tandem::kernels::cuda
