// What goes forward, in bf16 and in fp32, over sizes that lanes and tiles do not divide: the host's bits are those of
// the AVX2 kernels.
#include <cmath>

#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/lm_head.h"
#include "kernels/transformer_ops.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

#define IN_BOTH_TYPES(name)                   \
  Bytes name##_case(Machine& machine) {       \
    Bytes bytes = name##_on<bf16>(machine);   \
    append(bytes, name##_on<float>(machine)); \
    return bytes;                             \
  }                                           \
  Bytes name##_on_cpu(Stream& cpu) {          \
    Bytes bytes = name##_by_cpu<bf16>(cpu);   \
    append(bytes, name##_by_cpu<float>(cpu)); \
    return bytes;                             \
  }                                           \
  TANDEM_CUDA_AGAINST_AVX2_TESTS(name)

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes;
  append(bytes, values);
  return bytes;
}

constexpr int kRows = 37, kWidth = 100, kVocabulary = 50;
constexpr size_t kElements = size_t{kRows} * kWidth;

std::vector<int32_t> ids() {
  std::vector<int32_t> all(kRows);
  for (int i = 0; i < kRows; ++i) all[i] = i * 7 % kVocabulary;
  return all;
}

template <typename T>
Bytes embedding_on(Machine& machine) {
  const ArgumentsOf<T, TandemCudaEmbed, TandemCudaEmbedFloat> e{
      .table = machine.place(random_elements<T>(kVocabulary * kWidth, 1)),
      .ids = machine.place(ids()),
      .out = machine.room<OnMachine<T>>(kElements),
      .rows = kRows,
      .vocabulary = kVocabulary,
      .width = kWidth};
  EXPECT_EQ(machine.run(e), 0);
  return bytes_of(machine.fetch(e.out, kElements));
}
template <typename T>
Bytes embedding_by_cpu(Stream& cpu) {
  std::vector<T> out(kElements);
  EXPECT_TRUE(embed(cpu, random_elements<T>(kVocabulary * kWidth, 1).data(), kVocabulary, kWidth, ids(), out.data()));
  return bytes_of(out);
}
IN_BOTH_TYPES(embedding)

template <typename T>
Bytes norm_on(Machine& machine) {
  const ArgumentsOf<T, TandemCudaRmsNorm, TandemCudaRmsNormFloat> n{
      .x = machine.place(random_elements<T>(kElements, 1)),
      .weight = machine.place(random_elements<T>(kWidth, 2)),
      .out = machine.room<OnMachine<T>>(kElements),
      .epsilon = 1e-5f,
      .rows = kRows,
      .width = kWidth};
  EXPECT_EQ(machine.run(n), 0);
  return bytes_of(machine.fetch(n.out, kElements));
}
template <typename T>
Bytes norm_by_cpu(Stream& cpu) {
  std::vector<T> out(kElements);
  EXPECT_TRUE(rms_norm(cpu, random_elements<T>(kElements, 1).data(), random_elements<T>(kWidth, 2).data(), 1e-5f, kRows,
                       kWidth, out.data()));
  return bytes_of(out);
}
IN_BOTH_TYPES(norm)

// Heads of 20 in rows of 100, of which two are left as they are.
constexpr int kHeads = 3, kHeadSize = 20;
template <typename T>
Bytes head_norm_on(Machine& machine) {
  auto* x = machine.place(random_elements<T>(kElements, 1));
  EXPECT_EQ(machine.run(ArgumentsOf<T, TandemCudaHeadNorm, TandemCudaHeadNormFloat>{
                .x = x,
                .stride = kWidth,
                .weight = machine.place(random_elements<T>(kHeadSize, 2)),
                .epsilon = 1e-6f,
                .rows = kRows,
                .heads = kHeads,
                .head_size = kHeadSize}),
            0);
  return bytes_of(machine.fetch(x, kElements));
}
template <typename T>
Bytes head_norm_by_cpu(Stream& cpu) {
  auto x = random_elements<T>(kElements, 1);
  const auto weight = random_elements<T>(kHeadSize, 2);
  EXPECT_TRUE(head_norm(cpu, BasicHeadNorm<T>{.x = x.data(),
                                              .stride = kWidth,
                                              .weight = weight.data(),
                                              .epsilon = 1e-6f,
                                              .rows = kRows,
                                              .heads = kHeads,
                                              .head_size = kHeadSize}));
  return bytes_of(x);
}
IN_BOTH_TYPES(head_norm)

struct Turning {
  int rope_dim;
  bool interleaved, inverse;
};
constexpr Turning kTurnings[] = {
    {kHeadSize, false, false}, {12, false, true}, {12, true, false}, {kHeadSize, true, true}};
template <typename T>
Bytes turning_on(Machine& machine) {
  Bytes bytes;
  for (const Turning& turning : kTurnings) {
    auto* x = machine.place(random_elements<T>(kElements, 1));
    EXPECT_EQ(machine.run(ArgumentsOf<T, TandemCudaRope, TandemCudaRopeFloat>{
                  .x = x,
                  .stride = kWidth,
                  .positions = machine.place(ids()),
                  .table = machine.place(rope_table(kVocabulary, turning.rope_dim, 10000)),
                  .rows = kRows,
                  .heads = kHeads,
                  .head_size = kHeadSize,
                  .table_positions = kVocabulary,
                  .inverse = turning.inverse,
                  .rope_dim = turning.rope_dim,
                  .interleaved = turning.interleaved}),
              0);
    append(bytes, machine.fetch(x, kElements));
  }
  return bytes;
}
template <typename T>
Bytes turning_by_cpu(Stream& cpu) {
  Bytes bytes;
  const auto positions = ids();
  for (const Turning& turning : kTurnings) {
    auto x = random_elements<T>(kElements, 1);
    const auto table = rope_table(kVocabulary, turning.rope_dim, 10000);
    EXPECT_TRUE(rope(cpu, BasicRope<T>{.x = x.data(),
                                       .stride = kWidth,
                                       .positions = positions,
                                       .table = table.data(),
                                       .table_positions = kVocabulary,
                                       .rows = kRows,
                                       .heads = kHeads,
                                       .head_size = kHeadSize,
                                       .rope_dim = turning.rope_dim,
                                       .interleaved = turning.interleaved,
                                       .inverse = turning.inverse}));
    append(bytes, x);
  }
  return bytes;
}
IN_BOTH_TYPES(turning)

// Gates from far below to far above where a sigmoid is 0 or 1.
template <typename T>
std::vector<T> gate_up() {
  return random_elements<T>(kElements * 2, 1, 30);
}
template <typename T>
Bytes gates_on(Machine& machine) {
  Bytes bytes;
  const auto run = [&](auto arguments) {
    arguments.gate_up = machine.place(gate_up<T>());
    arguments.out = machine.room<OnMachine<T>>(kElements);
    arguments.rows = kRows;
    arguments.width = kWidth;
    EXPECT_EQ(machine.run(arguments), 0);
    append(bytes, machine.fetch(arguments.out, kElements));
  };
  run(ArgumentsOf<T, TandemCudaSwiglu, TandemCudaSwigluFloat>{});
  run(ArgumentsOf<T, TandemCudaGeglu, TandemCudaGegluFloat>{});
  return bytes;
}
template <typename T>
Bytes gates_by_cpu(Stream& cpu) {
  Bytes bytes;
  std::vector<T> out(kElements);
  EXPECT_TRUE(swiglu(cpu, gate_up<T>().data(), kRows, kWidth, out.data()));
  append(bytes, out);
  EXPECT_TRUE(geglu(cpu, gate_up<T>().data(), kRows, kWidth, out.data()));
  append(bytes, out);
  return bytes;
}
IN_BOTH_TYPES(gates)

template <typename T>
Bytes sum_on(Machine& machine) {
  auto* x = machine.place(random_elements<T>(kElements, 1));
  EXPECT_EQ(machine.run(ArgumentsOf<T, TandemCudaAdd, TandemCudaAddFloat>{
                .x = x, .y = machine.place(random_elements<T>(kElements, 2)), .count = kElements}),
            0);
  return bytes_of(machine.fetch(x, kElements));
}
template <typename T>
Bytes sum_by_cpu(Stream& cpu) {
  auto x = random_elements<T>(kElements, 1);
  EXPECT_TRUE(add(cpu, random_elements<T>(kElements, 2).data(), kElements, x.data()));
  return bytes_of(x);
}
IN_BOTH_TYPES(sum)

constexpr int kM = 70, kN = 65, kK = 90;
template <typename T>
Bytes product_on(Machine& machine) {
  ArgumentsOf<T, TandemCudaGemm, TandemCudaGemmFloat> g{.a = machine.place(random_elements<T>(kM * kK, 1)),
                                                        .a_row_stride = kK,
                                                        .a_k_stride = 1,
                                                        .b = machine.place(random_elements<T>(kN * kK, 2)),
                                                        .b_row_stride = kK,
                                                        .b_k_stride = 1,
                                                        .bias = machine.place(random_elements<T>(kN, 3)),
                                                        .residual = machine.place(random_elements<T>(kM * kN, 4)),
                                                        .out = machine.room<OnMachine<T>>(kM * kN),
                                                        .out_stride = kN,
                                                        .m = kM,
                                                        .n = kN,
                                                        .k = kK};
  EXPECT_EQ(machine.run(g), 0);
  return bytes_of(machine.fetch(g.out, kM * kN));
}
template <typename T>
std::vector<T> packed(Stream& cpu, const std::vector<T>& weight, int n, int k) {
  std::vector<T> result(packed_size(n, k));
  EXPECT_TRUE(pack(cpu, weight.data(), n, k, result.data()));
  return result;
}
template <typename T>
Bytes product_by_cpu(Stream& cpu) {
  const auto a = random_elements<T>(kM * kK, 1), bias = random_elements<T>(kN, 3), add = random_elements<T>(kM * kN, 4);
  const auto b = packed(cpu, random_elements<T>(kN * kK, 2), kN, kK);
  std::vector<T> out(kM * kN);
  EXPECT_TRUE(gemm(cpu, BasicGemm<T>{.a = a.data(),
                                     .a_stride = kK,
                                     .b = b.data(),
                                     .bias = bias.data(),
                                     .residual = add.data(),
                                     .out = out.data(),
                                     .out_stride = kN,
                                     .m = kM,
                                     .n = kN,
                                     .k = kK}));
  return bytes_of(out);
}
IN_BOTH_TYPES(product)

// Three products whose matrices lie side by side in rows, as heads do; of the second weight the columns are its rows.
constexpr int kGroups = 3;
template <typename T>
Bytes batched_products_on(Machine& machine) {
  Bytes bytes;
  const auto run = [&](int64_t row_stride, int64_t k_stride) {
    ArgumentsOf<T, TandemCudaBatchedGemm, TandemCudaBatchedGemmFloat> g{
        .a = machine.place(random_elements<T>(kM * kK * kGroups, 1)),
        .a_stride = kK * kGroups,
        .a_group = kK,
        .b = machine.place(random_elements<T>(kN * kK * kGroups, 2)),
        .b_row_stride = row_stride,
        .b_k_stride = k_stride,
        .b_group = kN * kK,
        .out = machine.room<OnMachine<T>>(kM * kN * kGroups),
        .out_stride = kN * kGroups,
        .out_group = kN,
        .groups = kGroups,
        .m = kM,
        .n = kN,
        .k = kK};
    EXPECT_EQ(machine.run(g), 0);
    append(bytes, machine.fetch(g.out, kM * kN * kGroups));
  };
  run(kK, 1);
  run(1, kN);
  return bytes;
}
template <typename T>
Bytes batched_products_by_cpu(Stream& cpu) {
  Bytes bytes;
  const auto a = random_elements<T>(kM * kK * kGroups, 1), b = random_elements<T>(kN * kK * kGroups, 2);
  for (const bool transposed : {false, true}) {
    std::vector<T> all(packed_size(kN, kK) * kGroups), out(kM * kN * kGroups);
    for (int group = 0; group < kGroups; ++group) {
      T* target = all.data() + packed_size(kN, kK) * group;
      const T* weight = b.data() + kN * kK * group;
      EXPECT_TRUE(transposed ? pack_transposed(cpu, weight, kK, kN, target) : pack(cpu, weight, kN, kK, target));
    }
    EXPECT_TRUE(batched_gemm(cpu, BasicBatchedGemm<T>{.a = a.data(),
                                                      .a_stride = kK * kGroups,
                                                      .a_group = kK,
                                                      .b = all.data(),
                                                      .b_group = packed_size(kN, kK),
                                                      .out = out.data(),
                                                      .out_stride = kN * kGroups,
                                                      .out_group = kN,
                                                      .groups = kGroups,
                                                      .m = kM,
                                                      .n = kN,
                                                      .k = kK}));
    append(bytes, out);
  }
  return bytes;
}
IN_BOTH_TYPES(batched_products)

const std::vector<int32_t> kOffsets = {0, 0, 1, kM};
template <typename T>
Bytes grouped_products_on(Machine& machine) {
  const ArgumentsOf<T, TandemCudaGroupedGemm, TandemCudaGroupedGemmFloat> g{
      .a = machine.place(random_elements<T>(kM * kK, 1)),
      .a_stride = kK,
      .offsets = machine.place(kOffsets),
      .b = machine.place(random_elements<T>(kN * kK * kGroups, 2)),
      .out = machine.room<OnMachine<T>>(kM * kN),
      .out_stride = kN,
      .groups = kGroups,
      .m = kM,
      .n = kN,
      .k = kK};
  EXPECT_EQ(machine.run(g), 0);
  return bytes_of(machine.fetch(g.out, kM * kN));
}
template <typename T>
Bytes grouped_products_by_cpu(Stream& cpu) {
  const auto a = random_elements<T>(kM * kK, 1), b = random_elements<T>(kN * kK * kGroups, 2);
  std::vector<T> all(packed_size(kN, kK) * kGroups), out(kM * kN);
  for (int group = 0; group < kGroups; ++group) {
    EXPECT_TRUE(pack(cpu, b.data() + kN * kK * group, kN, kK, all.data() + packed_size(kN, kK) * group));
  }
  EXPECT_TRUE(grouped_gemm(cpu, BasicGroupedGemm<T>{.a = a.data(),
                                                    .a_stride = kK,
                                                    .offsets = kOffsets.data(),
                                                    .b = all.data(),
                                                    .out = out.data(),
                                                    .out_stride = kN,
                                                    .groups = kGroups,
                                                    .m = kM,
                                                    .n = kN,
                                                    .k = kK}));
  return bytes_of(out);
}
IN_BOTH_TYPES(grouped_products)

// Each row's pairs lie far from it and from each other.
constexpr int kTopK = 2;
std::vector<int32_t> places() {
  std::vector<int32_t> all(kRows * kTopK);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i * 5 % all.size());
  return all;
}
template <typename T>
Bytes way_on(Machine& machine) {
  const auto* where = machine.place(places());
  const ArgumentsOf<T, TandemCudaPermute, TandemCudaPermuteFloat> p{
      .x = machine.place(random_elements<T>(kElements, 1)),
      .places = where,
      .out = machine.room<OnMachine<T>>(kElements * kTopK),
      .rows = kRows,
      .top_k = kTopK,
      .width = kWidth};
  EXPECT_EQ(machine.run(p), 0);
  const ArgumentsOf<T, TandemCudaCombine, TandemCudaCombineFloat> c{
      .y = p.out,
      .places = where,
      .weights = machine.place(random_floats(kRows * kTopK, 2)),
      .residual = machine.place(random_elements<T>(kElements, 3)),
      .out = machine.room<OnMachine<T>>(kElements),
      .rows = kRows,
      .top_k = kTopK,
      .width = kWidth};
  EXPECT_EQ(machine.run(c), 0);
  Bytes bytes = bytes_of(machine.fetch(p.out, kElements * kTopK));
  append(bytes, machine.fetch(c.out, kElements));
  return bytes;
}
template <typename T>
Bytes way_by_cpu(Stream& cpu) {
  const auto x = random_elements<T>(kElements, 1), residual = random_elements<T>(kElements, 3);
  const auto where = places();
  const auto weights = random_floats(kRows * kTopK, 2);
  std::vector<T> there(kElements * kTopK), out(kElements);
  EXPECT_TRUE(permute(
      cpu,
      BasicPermute<T>{
          .x = x.data(), .places = where.data(), .out = there.data(), .rows = kRows, .top_k = kTopK, .width = kWidth}));
  EXPECT_TRUE(combine(cpu, BasicCombine<T>{.y = there.data(),
                                           .places = where.data(),
                                           .weights = weights.data(),
                                           .residual = residual.data(),
                                           .out = out.data(),
                                           .rows = kRows,
                                           .top_k = kTopK,
                                           .width = kWidth}));
  Bytes bytes = bytes_of(there);
  append(bytes, out);
  return bytes;
}
IN_BOTH_TYPES(way)

// Logits and likeliest tokens; log-sums, whose logarithms are the kernels' own, are compared by lm_head's tests.
constexpr int kTokens = 200;
template <typename T>
Bytes logits_on(Machine& machine) {
  const size_t padded = padded_vocabulary(kTokens);
  const size_t workspace = kRows * padded;
  const ArgumentsOf<T, TandemCudaLmHead, TandemCudaLmHeadFloat> h{
      .hidden = machine.place(random_elements<T>(kElements, 1)),
      .head = machine.place(random_elements<T>(kTokens * kWidth, 2)),
      .logits = machine.room<float>(kRows * padded),
      .log_sum = machine.room<float>(kRows),
      .argmax = machine.room<int32_t>(kRows),
      .panel_sums = machine.room<float>(kRows * padded / 32),
      .rows = kRows,
      .width = kWidth,
      .vocabulary = kTokens,
      .workspace = machine.room<char>(workspace),
      .workspace_bytes = workspace};
  EXPECT_EQ(machine.run(h), 0);
  Bytes bytes = bytes_of(machine.fetch(h.logits, kRows * padded));
  append(bytes, machine.fetch(h.argmax, kRows));
  append(bytes, machine.fetch(h.panel_sums, kRows * padded / 32));
  return bytes;
}
template <typename T>
Bytes logits_by_cpu(Stream& cpu) {
  const size_t padded = padded_vocabulary(kTokens);
  const auto hidden = random_elements<T>(kElements, 1);
  const auto head = packed(cpu, random_elements<T>(kTokens * kWidth, 2), kTokens, kWidth);
  std::vector<float> logits(kRows * padded), log_sum(kRows);
  std::vector<int32_t> argmax(kRows);
  std::vector<RunningSum> sums(kRows * padded / kPanelColumns);
  EXPECT_TRUE(lm_head(cpu,
                      BasicLmHead<T>{.hidden = hidden.data(),
                                     .head = head.data(),
                                     .rows = kRows,
                                     .width = kWidth,
                                     .vocabulary = kTokens,
                                     .logits = logits.data(),
                                     .log_sum = log_sum.data(),
                                     .argmax = argmax.data(),
                                     .panel_sums = sums.data()},
                      {}, {}));
  Bytes bytes = bytes_of(logits);
  append(bytes, argmax);
  append(bytes, sums);
  return bytes;
}
IN_BOTH_TYPES(logits)

TEST(CudaHost, parts_of_ranks_are_added_in_their_order_and_rounded_once) {
  HostMachine machine;
  const std::vector<float> parts = {1e8f, 1.0f, -1e8f, 2.0f, 1.0f, 3.0f};  // three parts of two
  const TandemCudaSumPartsFloat s{
      .parts = machine.place(parts), .out = machine.room<float>(2), .count = 2, .count_of_parts = 3};
  ASSERT_EQ(machine.run(s), 0);
  EXPECT_EQ(machine.fetch(s.out, 2), (std::vector<float>{(1e8f - 1e8f) + 1.0f, 1.0f + 2.0f + 3.0f}));
  const TandemCudaSumParts b{.parts = machine.place(std::vector<bf16>{to_bf16(256), to_bf16(1), to_bf16(1)}),
                             .out = machine.room<uint16_t>(1),
                             .count = 1,
                             .count_of_parts = 3};
  ASSERT_EQ(machine.run(b), 0);
  EXPECT_EQ(to_float(as_bf16(machine.fetch(b.out, 1))[0]), 258) << "256 + 1 alone would be rounded to 256";
  EXPECT_EQ(machine.run(TandemCudaSumParts{.parts = b.parts, .out = b.out, .count = 1}), kTandemCudaSize);
}

}  // namespace
}  // namespace tandem::kernels::cuda
