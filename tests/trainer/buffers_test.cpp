// Named slices: what they are made of, whose part is whose, and a step that ranks take on their parts.
#include "trainer/learn/buffers.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "tests/collectives/processes.h"
#include "trainer/learn/optimizer.h"
#include "trainer/learn/ranks.h"

namespace tandem::trainer {
namespace {

using kernels::bf16;

TEST(Buffers, hold_zeros_by_name_in_the_order_in_which_they_were_added) {
  Buffers buffers(std::vector<SliceSpec>{{.name = "masters", .elements = 3},
                                         {.name = "rounded", .elements = 5, .dtype = model::DType::kBF16}});
  const Slice masters = buffers.at("masters");
  EXPECT_EQ(masters.elements(), 3u);
  EXPECT_EQ(masters.shape, std::vector<int64_t>{3});
  masters.host<float>()[1] = 7;
  buffers.add({.name = "moments", .elements = 1000});
  EXPECT_EQ(masters.host<float>()[1], 7) << "slices stay valid while others are added";
  EXPECT_EQ(buffers.at("masters").host<float>()[2], 0);
  std::vector<std::string> names;
  for (const Slice& slice : buffers.all()) names.push_back(slice.name);
  EXPECT_EQ(names, (std::vector<std::string>{"masters", "rounded", "moments"}));
  EXPECT_FALSE(buffers.contains("gradients"));
}

TEST(Buffers, take_what_their_specs_say_beforehand) {
  const std::vector<SliceSpec> specs = {{.name = "a", .elements = 10},
                                        {.name = "b", .elements = 10, .dtype = model::DType::kBF16},
                                        {.name = "c", .elements = 10, .touched = 4}};
  EXPECT_EQ(bytes_of(specs), 40u + 20 + 16);
  EXPECT_EQ(Buffers(specs).bytes(), bytes_of(specs));
}

TEST(BuffersDeathTest, a_wrong_name_or_format_ends_the_process) {
  Buffers buffers(std::vector<SliceSpec>{{.name = "masters", .elements = 3}});
  EXPECT_DEATH(buffers.at("master"), "");
  EXPECT_DEATH(buffers.add({.name = "masters", .elements = 1}), "");
  EXPECT_DEATH(buffers.at("masters").host<bf16>(), "");
}

TEST(Slice, parts_of_ranks_cover_the_whole_once) {
  std::vector<float> values(10);
  std::iota(values.begin(), values.end(), 0.0f);
  const Slice whole = model::slice_of("masters", std::span(values));
  for (const int ranks : {1, 3, 4, 16}) {
    std::vector<float> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      const Slice part = part_of_rank(whole, rank, ranks);
      EXPECT_EQ(part.name, "masters");
      const auto of_rank = part.host<float>();
      seen.insert(seen.end(), of_rank.begin(), of_rank.end());
    }
    EXPECT_EQ(seen, values) << ranks << " ranks";
  }
}

// Masters and gradients of a training of `count` numbers.
Buffers training(size_t count) {
  Buffers buffers(std::vector<SliceSpec>{{.name = "masters", .elements = count},
                                         {.name = "gradients", .elements = count},
                                         {.name = "weights", .elements = count, .dtype = model::DType::kBF16}});
  Random random(3);
  for (const char* name : {"masters", "gradients"})
    for (float& value : buffers.at(name).host<float>()) value = static_cast<float>(random.normal());
  return buffers;
}

// Some steps on the part of a rank; what becomes of all weights.
std::string train(size_t count, int rank, int ranks, collectives::Group* group) {
  auto stream = std::move(*kernels::Stream::cpu(1));
  Buffers buffers = training(count);
  const auto part = [&](const char* name) { return part_of_rank(buffers.at(name), rank, ranks); };
  auto optimizer = std::move(*Optimizer::create(part("masters").elements(), {}));
  for (int64_t number = 1; number <= 3; ++number) {
    const Status stepped = optimizer.step(stream, {.gradients = part("gradients"),
                                                   .masters = part("masters"),
                                                   .weights = part("weights"),
                                                   .learning_rate = 0.1f,
                                                   .number = number});
    if (!stepped) return stepped.to_string();
  }
  if (group != nullptr) {
    for (const char* name : {"masters", "weights"}) {
      const Status gathered = all_gather(*group, part(name), buffers.at(name), collectives::kEnough);
      if (!gathered) return gathered.to_string();
    }
  }
  std::string bytes;
  for (const Slice& slice : buffers.all())
    bytes.append(reinterpret_cast<const char*>(slice.bytes.data()), slice.bytes.size());
  return bytes;
}

TEST(Slice, ranks_that_own_parts_of_masters_and_moments_take_the_step_of_one) {
  constexpr size_t kCount = 4096;
  const std::string expected = train(kCount, 0, 1, nullptr);
  for (const int ranks : {2, 4}) {
    collectives::GroupFolder folder;
    collectives::Ranks processes(ranks, [&](int rank) -> std::string {
      auto group = collectives::meet_locally(
          {.folder = folder.path(), .rank = rank, .ranks = ranks, .deadline = collectives::kEnough});
      return group ? train(kCount, rank, ranks, group->get()) : group.error().to_string();
    });
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(processes.said(rank) == expected) << rank << " of " << ranks;
  }
}

TEST(Slice, sums_over_ranks_name_the_slice_that_they_cannot_add) {
  collectives::GroupFolder folder;
  collectives::Ranks processes(2, [&](int rank) -> std::string {
    auto group = collectives::meet_locally({.folder = folder.path(), .rank = rank, .ranks = 2});
    if (!group) return group.error().to_string();
    std::vector<float> values = {1, 2}, part(1);
    const Slice whole = model::slice_of("gradients", std::span(values));
    Status status = all_reduce(**group, whole, collectives::kEnough);
    if (status)
      status = reduce_scatter(**group, whole, model::slice_of("gradients", std::span(part)), collectives::kEnough);
    if (status) status = broadcast(**group, whole, 0, collectives::kEnough);
    if (!status) return status.to_string();
    std::vector<std::byte> bytes(2);
    const Slice refused = model::slice_of("codes", std::span(bytes));
    return std::to_string(values[0]) + " " + std::to_string(part[0]) + " " +
           all_reduce(**group, refused, collectives::kEnough).message();
  });
  EXPECT_EQ(processes.said(0), "2.000000 4.000000 codes is U8; only F32 and BF16 are summed");
  EXPECT_EQ(processes.said(1), "2.000000 8.000000 codes is U8; only F32 and BF16 are summed");
}

}  // namespace
}  // namespace tandem::trainer
