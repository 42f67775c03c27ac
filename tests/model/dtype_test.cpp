#include "model/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::model {
namespace {

TEST(DTypes, every_half_comes_back_and_what_lies_between_goes_to_the_nearest_even) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits), next = static_cast<uint16_t>(bits + 1);
    const float value = f16_to_float(half);
    ASSERT_EQ(float_to_f16(value), half);
    ASSERT_EQ(float_to_f16(-value), half | 0x8000u);
    // Beyond the largest number lies 2^16, as far as rounding goes.
    const float above = next == 0x7c00 ? 65536.0f : f16_to_float(next);
    const float middle = value + (above - value) / 2;
    ASSERT_EQ(float_to_f16(middle), bits % 2 == 0 ? half : next) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), half) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 1e6f)), next) << bits;
  }
  EXPECT_EQ(float_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
}

}  // namespace
}  // namespace tandem::model
