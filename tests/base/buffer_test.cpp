#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace tandem {
namespace {

TEST(Buffer, is_zero_at_first_and_keeps_what_is_written) {
  Buffer<float> buffer((size_t{1} << 20) + 3);
  ASSERT_EQ(buffer.size(), (size_t{1} << 20) + 3);
  EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](float value) { return value == 0; }));
  buffer[buffer.size() - 1] = 7;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  Buffer<float> moved = std::move(buffer);
  EXPECT_EQ(moved[moved.size() - 1], 7);
  EXPECT_TRUE(buffer.empty());
}

TEST(Buffer, gives_back_a_part_and_leaves_its_neighbours) {
  Buffer<int> buffer(size_t{1} << 20);
  std::fill(buffer.begin(), buffer.end(), 5);
  buffer.give_back(1000, 500000);
  EXPECT_EQ(buffer[999], 5);
  EXPECT_EQ(buffer[250000], 0);
  EXPECT_EQ(buffer[501000], 5);
  buffer[250000] = 6;
  EXPECT_EQ(buffer[250000], 6);
}

TEST(Buffer, of_nothing_has_no_memory) {
  const Buffer<int> none(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.begin(), none.end());
}

TEST(Buffer, that_no_address_space_holds_throws) {
  EXPECT_THROW(Buffer<char>(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(Buffer<char>(size_t{1} << 62), std::bad_alloc);
}

}  // namespace
}  // namespace tandem
