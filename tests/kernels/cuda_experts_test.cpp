#include <cmath>

#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

Stream avx2() { return std::move(*Stream::cpu(2, Isa::kAvx2)); }

constexpr int kRows = 70, kExperts = 21, kTopK = 3, kWidth = 100;
constexpr size_t kPairs = size_t{kRows} * kTopK;

// Ties, and a logit that is not a number.
std::vector<float> logits() {
  auto values = random_floats(size_t{kRows} * kExperts, 1, 2);
  for (int i = 0; i < kExperts; ++i) values[i] = i % 2 == 0 ? 1.5f : 0.25f;
  values[kExperts + 4] = NAN;
  return values;
}

struct Scoring {
  bool sigmoid, normalise, bias;
};
constexpr Scoring kScorings[] = {
    {false, false, false}, {false, true, false}, {true, false, false}, {true, true, false}, {true, true, true}};

TandemCudaRoute route_arguments(Machine& machine, const Scoring& s) {
  return {.logits = machine.place(logits()),
          .ids = machine.room<int32_t>(kPairs),
          .weights = machine.room<float>(kPairs),
          .bias = s.bias ? machine.place(random_floats(kExperts, 2)) : nullptr,
          .scale = 2.5f,
          .sigmoid = s.sigmoid,
          .normalise = s.normalise,
          .rows = kRows,
          .experts = kExperts,
          .top_k = kTopK};
}
TandemCudaRouteBackward backward_of(Machine& machine, const TandemCudaRoute& r) {
  return {.logits = r.logits,
          .ids = r.ids,
          .weights = r.weights,
          .grad_weights = machine.place(random_floats(kPairs, 3)),
          .grad_logits = machine.room<uint16_t>(kRows * 32),
          .grad_stride = 32,
          .scale = r.scale,
          .sigmoid = r.sigmoid,
          .normalise = r.normalise,
          .rows = kRows,
          .experts = kExperts,
          .top_k = kTopK};
}

// The way to the experts and back, of rows that were routed by their logits.
struct Way {
  TandemCudaGroupByExpert group;
  TandemCudaPermute permute;
  TandemCudaPermuteBackward permute_backward;
  TandemCudaCombine combine;
  TandemCudaCombineBackward combine_backward;
};
Way way_of(Machine& machine, const TandemCudaRoute& r) {
  Way way{.group = {.ids = r.ids,
                    .offsets = machine.room<int32_t>(kExperts + 1),
                    .places = machine.room<int32_t>(kPairs),
                    .rows = kRows,
                    .experts = kExperts,
                    .top_k = kTopK}};
  way.permute = {.x = machine.place(random_bf16(size_t{kRows} * kWidth, 4)),
                 .places = way.group.places,
                 .out = machine.room<uint16_t>(kPairs * kWidth),
                 .rows = kRows,
                 .top_k = kTopK,
                 .width = kWidth};
  way.permute_backward = {.grad_out = machine.place(random_bf16(kPairs * kWidth, 5)),
                          .places = way.group.places,
                          .grad_x = machine.room<uint16_t>(size_t{kRows} * kWidth),
                          .rows = kRows,
                          .top_k = kTopK,
                          .width = kWidth};
  way.combine = {.y = way.permute_backward.grad_out,
                 .places = way.group.places,
                 .weights = r.weights,
                 .residual = way.permute.x,
                 .out = machine.room<uint16_t>(size_t{kRows} * kWidth),
                 .rows = kRows,
                 .top_k = kTopK,
                 .width = kWidth};
  way.combine_backward = {.y = way.combine.y,
                          .places = way.group.places,
                          .weights = r.weights,
                          .grad_out = way.permute.x,
                          .grad_y = machine.room<uint16_t>(kPairs * kWidth),
                          .grad_weights = machine.room<float>(kPairs),
                          .rows = kRows,
                          .top_k = kTopK,
                          .width = kWidth};
  for (const int code : {machine.run(way.group), machine.run(way.permute), machine.run(way.permute_backward),
                         machine.run(way.combine), machine.run(way.combine_backward)})
    EXPECT_EQ(code, 0);
  return way;
}

Bytes experts_case(Machine& machine) {
  Bytes bytes;
  for (const Scoring& scoring : kScorings) {
    const TandemCudaRoute r = route_arguments(machine, scoring);
    EXPECT_EQ(machine.run(r), 0);
    append(bytes, machine.fetch(r.ids, kPairs));
    append(bytes, machine.fetch(r.weights, kPairs));
    const TandemCudaRouteBackward b = backward_of(machine, r);
    EXPECT_EQ(machine.run(b), 0);
    append(bytes, machine.fetch(b.grad_logits, kRows * 32));
    const Way way = way_of(machine, r);
    append(bytes, machine.fetch(way.group.offsets, kExperts + 1));
    append(bytes, machine.fetch(way.permute.out, kPairs * kWidth));
    append(bytes, machine.fetch(way.permute_backward.grad_x, size_t{kRows} * kWidth));
    append(bytes, machine.fetch(way.combine.out, size_t{kRows} * kWidth));
    append(bytes, machine.fetch(way.combine_backward.grad_y, kPairs * kWidth));
    append(bytes, machine.fetch(way.combine_backward.grad_weights, kPairs));
  }
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(experts)

// NaN is equal to NaN.
void expect_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(std::memcmp(&got[i], &expected[i], sizeof(float)) == 0 ||
                (std::isnan(got[i]) && std::isnan(expected[i])))
        << i << ": " << got[i] << " and " << expected[i];
}

TEST(CudaHost, routing_and_its_gradient_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto scores = logits(), bias = random_floats(kExperts, 2), grads = random_floats(kPairs, 3);
  for (const Scoring& s : kScorings) {
    SCOPED_TRACE(testing::Message() << s.sigmoid << s.normalise << s.bias);
    const Score score = s.sigmoid ? Score::kSigmoid : Score::kSoftmax;
    std::vector<int32_t> ids(kPairs);
    std::vector<float> weights(kPairs);
    ASSERT_TRUE(kernels::route(cpu, {.logits = scores.data(),
                                     .ids = ids.data(),
                                     .weights = weights.data(),
                                     .score = score,
                                     .bias = s.bias ? bias.data() : nullptr,
                                     .scale = 2.5f,
                                     .normalise = s.normalise,
                                     .rows = kRows,
                                     .experts = kExperts,
                                     .top_k = kTopK}));
    const TandemCudaRoute r = route_arguments(machine, s);
    ASSERT_EQ(machine.run(r), 0);
    EXPECT_EQ(machine.fetch(r.ids, kPairs), ids);
    expect_bits(machine.fetch(r.weights, kPairs), weights);

    std::vector<bf16> grad_logits(size_t{kRows} * 32);
    ASSERT_TRUE(kernels::route_backward(cpu, {.logits = scores.data(),
                                              .ids = ids.data(),
                                              .weights = weights.data(),
                                              .grad_weights = grads.data(),
                                              .grad_logits = grad_logits.data(),
                                              .grad_stride = 32,
                                              .score = score,
                                              .scale = 2.5f,
                                              .normalise = s.normalise,
                                              .rows = kRows,
                                              .experts = kExperts,
                                              .top_k = kTopK}));
    const TandemCudaRouteBackward b = backward_of(machine, r);
    ASSERT_EQ(machine.run(b), 0);
    EXPECT_EQ(as_bf16(machine.fetch(b.grad_logits, grad_logits.size())), grad_logits);
  }
}

// 24 experts in groups of four, a row of ties between groups, whose biases are the same, and one with a group of NaN.
constexpr int kGrouped = 24, kOfGroups = 6;
std::vector<float> grouped_logits() {
  auto values = random_floats(size_t{kRows} * kGrouped, 7);
  for (int i = 0; i < kGrouped; ++i) values[i] = 0.5f;
  for (int i = 0; i < 4; ++i) values[kGrouped + i] = NAN;
  return values;
}
std::vector<float> grouped_bias() {
  const auto of_group = random_floats(kGrouped / kOfGroups, 8);
  std::vector<float> bias(kGrouped);
  for (int i = 0; i < kGrouped; ++i) bias[i] = of_group[i % of_group.size()];
  return bias;
}
TandemCudaRoute route_by_group(Machine& machine) {
  return {.logits = machine.place(grouped_logits()),
          .ids = machine.room<int32_t>(kPairs),
          .weights = machine.room<float>(kPairs),
          .bias = machine.place(grouped_bias()),
          .scale = 2.5f,
          .sigmoid = 1,
          .normalise = 1,
          .rows = kRows,
          .experts = kGrouped,
          .top_k = kTopK,
          .groups = kOfGroups,
          .top_k_groups = 2};
}
Bytes routing_by_group_case(Machine& machine) {
  const TandemCudaRoute r = route_by_group(machine);
  EXPECT_EQ(machine.run(r), 0);
  Bytes bytes;
  append(bytes, machine.fetch(r.ids, kPairs));
  append(bytes, machine.fetch(r.weights, kPairs));
  return bytes;
}
Bytes routing_by_group_on_cpu(Stream& cpu) {
  const auto scores = grouped_logits(), bias = grouped_bias();
  std::vector<int32_t> ids(kPairs);
  std::vector<float> weights(kPairs);
  EXPECT_TRUE(kernels::route(cpu, {.logits = scores.data(),
                                   .ids = ids.data(),
                                   .weights = weights.data(),
                                   .score = Score::kSigmoid,
                                   .bias = bias.data(),
                                   .scale = 2.5f,
                                   .normalise = true,
                                   .rows = kRows,
                                   .experts = kGrouped,
                                   .top_k = kTopK,
                                   .groups = kOfGroups,
                                   .top_k_groups = 2}));
  Bytes bytes;
  append(bytes, ids);
  append(bytes, weights);
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(routing_by_group)

// Of 24 experts in groups: rows with experts of no group that it would choose, with its own, and with none.
std::vector<int32_t> given_ids() {
  std::vector<int32_t> given(kPairs);
  for (int pair = 0; pair < static_cast<int>(kPairs); ++pair)
    given[pair] = (pair / kTopK * 5 + pair % kTopK * 7) % kGrouped;
  for (int row = 0; row < kRows; row += 4) given[row * kTopK] = -1;
  return given;
}
Bytes routing_as_given_case(Machine& machine) {
  TandemCudaRoute r = route_by_group(machine);
  r.given = machine.place(given_ids());
  r.changed = machine.room<int32_t>(kRows);
  EXPECT_EQ(machine.run(r), 0);
  Bytes bytes;
  append(bytes, machine.fetch(r.ids, kPairs));
  append(bytes, machine.fetch(r.weights, kPairs));
  append(bytes, machine.fetch(r.changed, kRows));
  return bytes;
}
Bytes routing_as_given_on_cpu(Stream& cpu) {
  const auto scores = grouped_logits(), bias = grouped_bias();
  const auto given = given_ids();
  std::vector<int32_t> ids(kPairs);
  std::vector<float> weights(kPairs);
  std::vector<uint8_t> changed(kRows);
  EXPECT_TRUE(kernels::route(cpu, {.logits = scores.data(),
                                   .ids = ids.data(),
                                   .weights = weights.data(),
                                   .score = Score::kSigmoid,
                                   .bias = bias.data(),
                                   .scale = 2.5f,
                                   .normalise = true,
                                   .rows = kRows,
                                   .experts = kGrouped,
                                   .top_k = kTopK,
                                   .groups = kOfGroups,
                                   .top_k_groups = 2,
                                   .given = given.data(),
                                   .changed = changed.data()}));
  EXPECT_EQ(std::count(changed.begin(), changed.end(), 1) > 0, true);
  Bytes bytes;
  append(bytes, ids);
  append(bytes, weights);
  append(bytes, std::vector<int32_t>(changed.begin(), changed.end()));
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(routing_as_given)

TEST(CudaHost, the_way_to_the_experts_and_back_has_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  TandemCudaRoute r = route_arguments(machine, {true, true, false});
  ASSERT_EQ(machine.run(r), 0);
  const Way way = way_of(machine, r);
  const auto ids = machine.fetch(r.ids, kPairs);
  const auto weights = machine.fetch(r.weights, kPairs);
  std::vector<int32_t> offsets(kExperts + 1), places(kPairs);
  ASSERT_TRUE(kernels::group_by_expert(cpu, {.ids = ids.data(),
                                             .offsets = offsets.data(),
                                             .places = places.data(),
                                             .rows = kRows,
                                             .experts = kExperts,
                                             .top_k = kTopK}));
  EXPECT_EQ(machine.fetch(way.group.offsets, offsets.size()), offsets);
  EXPECT_EQ(machine.fetch(way.group.places, kPairs), places);

  const auto x = random_bf16(size_t{kRows} * kWidth, 4), y = random_bf16(kPairs * kWidth, 5);
  std::vector<bf16> there(kPairs * kWidth), back(x.size()), out(x.size()), grad_y(there.size());
  std::vector<float> grad_weights(kPairs);
  ASSERT_TRUE(kernels::permute(
      cpu,
      {.x = x.data(), .places = places.data(), .out = there.data(), .rows = kRows, .top_k = kTopK, .width = kWidth}));
  ASSERT_TRUE(kernels::permute_backward(cpu, {.grad_out = y.data(),
                                              .places = places.data(),
                                              .grad_x = back.data(),
                                              .rows = kRows,
                                              .top_k = kTopK,
                                              .width = kWidth}));
  ASSERT_TRUE(kernels::combine(cpu, {.y = y.data(),
                                     .places = places.data(),
                                     .weights = weights.data(),
                                     .residual = x.data(),
                                     .out = out.data(),
                                     .rows = kRows,
                                     .top_k = kTopK,
                                     .width = kWidth}));
  ASSERT_TRUE(kernels::combine_backward(cpu, {.y = y.data(),
                                              .places = places.data(),
                                              .weights = weights.data(),
                                              .grad_out = x.data(),
                                              .grad_y = grad_y.data(),
                                              .grad_weights = grad_weights.data(),
                                              .rows = kRows,
                                              .top_k = kTopK,
                                              .width = kWidth}));
  EXPECT_EQ(as_bf16(machine.fetch(way.permute.out, there.size())), there);
  EXPECT_EQ(as_bf16(machine.fetch(way.permute_backward.grad_x, back.size())), back);
  EXPECT_EQ(as_bf16(machine.fetch(way.combine.out, out.size())), out);
  EXPECT_EQ(as_bf16(machine.fetch(way.combine_backward.grad_y, grad_y.size())), grad_y);
  expect_bits(machine.fetch(way.combine_backward.grad_weights, kPairs), grad_weights);
}

TEST(CudaHost, a_pair_whose_expert_does_not_exist_is_left_out_everywhere) {
  HostMachine machine;
  std::vector<int32_t> ids = {0, 7, -1, 1, 1, 0};  // three rows at two of two experts
  TandemCudaGroupByExpert g{.ids = machine.place(ids),
                            .offsets = machine.room<int32_t>(3),
                            .places = machine.room<int32_t>(ids.size()),
                            .rows = 3,
                            .experts = 2,
                            .top_k = 2};
  ASSERT_EQ(machine.run(g), 0);
  EXPECT_EQ(machine.fetch(g.offsets, 3), (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(machine.fetch(g.places, 6), (std::vector<int32_t>{0, -1, -1, 2, 3, 1}));
}

// Groups of no rows, of one, of more than a tile.
const std::vector<int32_t> kOffsets = {0, 0, 1, 66, 66, 130};
constexpr int kGroups = 5, kM = 130, kN = 70, kK = 50;

TandemCudaGroupedGemm grouped(Machine& machine) {
  return {.a = machine.place(random_bf16(size_t{kM} * kK, 1)),
          .a_stride = kK,
          .offsets = machine.place(kOffsets),
          .b = machine.place(random_bf16(size_t{kGroups} * kN * kK, 2)),
          .out = machine.room<uint16_t>(size_t{kM} * kN),
          .out_stride = kN,
          .groups = kGroups,
          .m = kM,
          .n = kN,
          .k = kK};
}
TandemCudaKGroupedGemm k_grouped(Machine& machine) {
  return {.a = machine.place(random_bf16(size_t{kM} * kN, 3)),
          .b = machine.place(random_bf16(size_t{kM} * kK, 4)),
          .offsets = machine.place(kOffsets),
          .out = machine.place(random_floats(size_t{kGroups} * kN * kK, 5)),
          .groups = kGroups,
          .rows = kM,
          .m = kN,
          .n = kK};
}

Bytes grouped_gemm_case(Machine& machine) {
  Bytes bytes;
  const TandemCudaGroupedGemm g = grouped(machine);
  EXPECT_EQ(machine.run(g), 0);
  append(bytes, machine.fetch(g.out, size_t{kM} * kN));
  const TandemCudaKGroupedGemm k = k_grouped(machine);
  EXPECT_EQ(machine.run(k), 0);
  append(bytes, machine.fetch(k.out, size_t{kGroups} * kN * kK));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(grouped_gemm)

TEST(CudaHost, products_by_group_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto a = random_bf16(size_t{kM} * kK, 1), b = random_bf16(size_t{kGroups} * kN * kK, 2);
  const size_t packed_weight = packed_size(kN, kK);
  std::vector<bf16> packed(kGroups * packed_weight), out(size_t{kM} * kN);
  for (int group = 0; group < kGroups; ++group)
    ASSERT_TRUE(pack(cpu, b.data() + size_t{kN} * kK * group, kN, kK, packed.data() + packed_weight * group));
  ASSERT_TRUE(kernels::grouped_gemm(cpu, {.a = a.data(),
                                          .a_stride = kK,
                                          .offsets = kOffsets.data(),
                                          .b = packed.data(),
                                          .out = out.data(),
                                          .out_stride = kN,
                                          .groups = kGroups,
                                          .m = kM,
                                          .n = kN,
                                          .k = kK}));
  const TandemCudaGroupedGemm g = grouped(machine);
  ASSERT_EQ(machine.run(g), 0);
  EXPECT_EQ(as_bf16(machine.fetch(g.out, out.size())), out);
}

TEST(CudaHost, gradients_of_weights_by_group_give_the_bits_of_the_avx2_kernel) {
  Stream cpu = avx2();
  HostMachine machine;
  const auto a = random_bf16(size_t{kM} * kN, 3), b = random_bf16(size_t{kM} * kK, 4);
  auto expected = random_floats(size_t{kGroups} * kN * kK, 5);
  std::vector<bf16> packed_a(packed_groups_size(kN, kM, kGroups)), packed_b(packed_groups_size(kK, kM, kGroups));
  const auto pack_rows = [&](const std::vector<bf16>& x, int columns, std::vector<bf16>& packed) {
    return pack_groups(cpu, {.x = x.data(),
                             .offsets = kOffsets.data(),
                             .packed = packed.data(),
                             .groups = kGroups,
                             .rows = kM,
                             .columns = columns});
  };
  ASSERT_TRUE(pack_rows(a, kN, packed_a));
  ASSERT_TRUE(pack_rows(b, kK, packed_b));
  ASSERT_TRUE(kernels::k_grouped_gemm(cpu, {.a = packed_a.data(),
                                            .b = packed_b.data(),
                                            .offsets = kOffsets.data(),
                                            .out = expected.data(),
                                            .groups = kGroups,
                                            .rows = kM,
                                            .m = kN,
                                            .n = kK}));
  const TandemCudaKGroupedGemm k = k_grouped(machine);
  ASSERT_EQ(machine.run(k), 0);
  expect_bits(machine.fetch(k.out, expected.size()), expected);
}

TEST(CudaHost, routing_refuses_choices_that_cannot_be_made) {
  HostMachine machine;
  TandemCudaRoute r = route_arguments(machine, kScorings[0]);
  r.top_k = kExperts + 1;
  EXPECT_EQ(machine.run(r), kTandemCudaShape);
  r.top_k = 0;
  EXPECT_EQ(machine.run(r), kTandemCudaShape);
  TandemCudaRoute biased = route_arguments(machine, {true, true, true});
  biased.sigmoid = 0;
  EXPECT_EQ(machine.run(biased), kTandemCudaShape);
  TandemCudaRoute by_group = route_arguments(machine, {true, true, true});
  by_group.groups = 7;
  by_group.top_k_groups = 1;
  EXPECT_EQ(machine.run(by_group), kTandemCudaOk);
  by_group.top_k = 4;
  EXPECT_EQ(machine.run(by_group), kTandemCudaShape) << "a group has three";
  by_group.top_k = 3;
  by_group.groups = 5;
  EXPECT_EQ(machine.run(by_group), kTandemCudaShape) << "21 experts do not make five groups";
  by_group.groups = 7;
  by_group.sigmoid = 0;
  by_group.bias = nullptr;
  EXPECT_EQ(machine.run(by_group), kTandemCudaShape) << "softmax";
  TandemCudaGroupedGemm g = grouped(machine);
  g.a_stride = kK - 1;
  EXPECT_EQ(machine.run(g), kTandemCudaStride);
}

}  // namespace
}  // namespace tandem::kernels::cuda
