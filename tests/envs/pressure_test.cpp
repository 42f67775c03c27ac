#include "envs/fleet/pressure.h"

#include <gtest/gtest.h>

#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

constexpr const char* kRest =
    " avg60=43.95 avg300=17.56 total=64358475\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

TEST(Pressure, is_the_share_of_the_last_ten_seconds_in_which_anything_waited) {
  Scratch scratch;
  scratch.put("cpu.pressure", std::string("some avg10=50.26") + kRest);
  scratch.put("memory.pressure", std::string("some avg10=0.00") + kRest);
  scratch.put("io.pressure", std::string("some avg10=100.00") + kRest);
  const auto pressure = read_pressure(scratch.path, ".pressure");
  ASSERT_TRUE(pressure);
  EXPECT_DOUBLE_EQ(pressure->cpu, 0.5026);
  EXPECT_DOUBLE_EQ(pressure->memory, 0);
  EXPECT_DOUBLE_EQ(pressure->io, 1);
}

TEST(Pressure, is_none_where_the_kernel_does_not_count_it_or_says_something_else) {
  Scratch scratch;
  EXPECT_FALSE(read_pressure(scratch.path, ""));
  scratch.put("memory", std::string("some avg10=0.00") + kRest);
  scratch.put("io", std::string("some avg10=0.00") + kRest);
  for (const char* text :
       {"", "some", "some avg10=", "some avg10=x", "some avg10=nan", "some avg10=-1", "some avg10=101"}) {
    scratch.put("cpu", text);
    EXPECT_FALSE(read_pressure(scratch.path, "")) << text;
  }
}

}  // namespace
}  // namespace tandem::envs
