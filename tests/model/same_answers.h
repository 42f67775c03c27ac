// Answers of executors that must be the same to the bit.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "model/executor.h"

namespace tandem::model {

inline void expect_same(const std::vector<Answer>& got, const std::vector<Answer>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].draws.size(), expected[i].draws.size());
    for (size_t d = 0; d < got[i].draws.size(); ++d) {
      EXPECT_EQ(got[i].draws[d].token, expected[i].draws[d].token) << "plan " << i << " draw " << d;
      EXPECT_EQ(got[i].draws[d].logprob, expected[i].draws[d].logprob) << "plan " << i << " draw " << d;
      EXPECT_EQ(got[i].draws[d].sampling_logprob, expected[i].draws[d].sampling_logprob) << "plan " << i << " " << d;
    }
    EXPECT_EQ(got[i].picks, expected[i].picks) << "plan " << i;
    EXPECT_EQ(got[i].likeliest, expected[i].likeliest) << "plan " << i;
    EXPECT_EQ(got[i].tops, expected[i].tops) << "plan " << i;
    EXPECT_EQ(got[i].routes, expected[i].routes) << "plan " << i;
  }
}

}  // namespace tandem::model
