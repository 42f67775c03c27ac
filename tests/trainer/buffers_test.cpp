// Named slices: what they are made of.
#include "trainer/learn/buffers.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem::trainer
