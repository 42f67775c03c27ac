#include "envs/sandbox/fields.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::envs {
namespace {

double sent(double seconds) {
  std::string bytes;
  put_seconds(bytes, seconds);
  return FieldReader(bytes).seconds().value();
}

TEST(Fields, times_arrive_as_they_were_sent) {
  for (const double seconds : {0.0, 0.001, 1.001, 4.35, 120.0, 86400.5, kLongestSeconds})
    EXPECT_EQ(sent(seconds), seconds);
  EXPECT_EQ(sent(-1), 0);
  EXPECT_EQ(sent(std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(sent(std::numeric_limits<double>::infinity()), kLongestSeconds);
}

TEST(Fields, a_time_limit_longer_than_a_number_of_milliseconds_can_say_is_refused) {
  std::string bytes;
  put_number(bytes, ~uint64_t{0});
  const auto seconds = FieldReader(bytes).seconds();
  ASSERT_FALSE(seconds);
  EXPECT_EQ(seconds.error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tandem::envs
