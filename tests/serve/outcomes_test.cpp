#include "serve/outcomes.h"

#include <gtest/gtest.h>

namespace tandem::serve {
namespace {

// A version whose answers are short is not refused for the noise of their few tokens.
TEST(Outcomes, short_answers_say_nothing_of_the_seconds_of_a_token) {
  Outcomes outcomes;
  outcomes.observe_tokens(5, 1);
  outcomes.observe_tokens(5, Outcomes::kFewestTokens - 1);
  EXPECT_EQ(outcomes.per_token.count, 0u);
  outcomes.observe_tokens(1.6, Outcomes::kFewestTokens);
  EXPECT_EQ(outcomes.per_token.count, 1u);
  EXPECT_DOUBLE_EQ(outcomes.per_token.sum, std::log(0.1));
}

}  // namespace
}  // namespace tandem::serve
