#include "gateway/rate_news.h"

#include <gtest/gtest.h>

#include "wire/header_values.h"

namespace tandem::gateway {
namespace {

using namespace std::chrono_literals;
using Headers = std::map<std::string, std::string>;

TEST(RateNews, spans_are_read_as_providers_write_them) {
  EXPECT_EQ(duration_of("20ms"), 20ms);
  EXPECT_EQ(duration_of("1s"), 1s);
  EXPECT_EQ(duration_of("6m0s"), 6min);
  EXPECT_EQ(duration_of("1h30m0.5s"), 90min + 500ms);
  EXPECT_EQ(duration_of("7"), 7s);
  EXPECT_EQ(duration_of("999999999h"), 24h);
  for (const auto text : {"", "s", "-1s", "1x", "1s2", "1e9s", "nan", "inf", "1 s", "0x10s"})
    EXPECT_FALSE(duration_of(text)) << text;
}

TEST(RateNews, openai_and_anthropic) {
  const auto openai = rate_news_of({{"x-ratelimit-remaining-requests", "59"},
                                    {"x-ratelimit-reset-requests", "1s"},
                                    {"x-ratelimit-remaining-tokens", "149984"},
                                    {"x-ratelimit-reset-tokens", "6ms"}},
                                   0);
  EXPECT_EQ(openai.requests_left, 59);
  EXPECT_EQ(openai.requests_reset, 1s);
  EXPECT_EQ(openai.tokens_left, 149984);
  EXPECT_EQ(openai.tokens_reset, 6ms);
  const auto anthropic = rate_news_of(
      {{"anthropic-ratelimit-tokens-remaining", "1000"}, {"anthropic-ratelimit-tokens-reset", "1970-01-01T00:01:40Z"}},
      90);
  EXPECT_EQ(anthropic.tokens_left, 1000);
  EXPECT_EQ(anthropic.tokens_reset, 10s);
  EXPECT_FALSE(anthropic.requests_left);
}

TEST(RateNews, what_is_malformed_counts_for_nothing) {
  const auto news = rate_news_of({{"x-ratelimit-remaining-requests", "many"},
                                  {"x-ratelimit-reset-requests", "1s"},
                                  {"x-ratelimit-remaining-tokens", "5"},
                                  {"x-ratelimit-reset-tokens", "soon"}},
                                 0);
  EXPECT_FALSE(news.requests_left);
  EXPECT_FALSE(news.tokens_left) << "when it ends is not known";
}

TEST(RateNews, retry_after) {
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "7"}}, 0), 7s);
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "1.5"}}, 0), 1500ms);
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "7"}, {"retry-after-ms", "250"}}, 0), 250ms);
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "Thu, 01 Jan 1970 00:02:00 GMT"}}, 100), 20s);
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "Thu, 01 Jan 1970 00:02:00 GMT"}}, 200), 0s) << "it has passed";
  EXPECT_EQ(wire::retry_after_of({{"retry-after", "1000000"}}, 0), 1h);
  EXPECT_FALSE(wire::retry_after_of({{"retry-after", "later"}}, 0));
  EXPECT_FALSE(wire::retry_after_of(Headers{}, 0));
}

}  // namespace
}  // namespace tandem::gateway
