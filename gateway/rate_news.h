// Parses a provider's rate limits from the headers of an answer: those of OpenAI (x-ratelimit-remaining-tokens and so
// on) and of Anthropic (anthropic-ratelimit-tokens-remaining).
//
// Pure; thread safety: none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tandem::gateway {

struct RateNews {
  std::optional<double> requests_left, tokens_left;
  Duration requests_reset{}, tokens_reset{};  // until they are whole again
};

// Headers by their names in small letters; those that are malformed count for nothing. `unix_now` for the ends that are
// dates.
RateNews rate_news_of(const std::map<std::string, std::string>& headers, double unix_now);

// "20ms", "1s", "6m0s", "1h30m0.5s", "7"; nothing where it is none. At most a day.
std::optional<Duration> duration_of(std::string_view text);

}  // namespace tandem::gateway
