#include "gateway/rate_news.h"

#include <algorithm>

#include "base/text.h"
#include "wire/header_values.h"

namespace tandem::gateway {
namespace {

constexpr double kMostReset = 86400;  // seconds

std::string_view header(const std::map<std::string, std::string>& headers, const std::string& name) {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<Duration> until(std::string_view text, double unix_now) {
  if (const auto span = duration_of(text)) return span;
  const auto date = wire::header_date(text);
  if (!date) return std::nullopt;
  return from_seconds(std::clamp(*date - unix_now, 0.0, kMostReset));
}

}  // namespace

std::optional<Duration> duration_of(std::string_view text) {
  if (const auto seconds = wire::header_number(text)) return from_seconds(std::min(*seconds, kMostReset));
  double sum = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto amount = wire::header_number(text.substr(0, digits));
    if (!amount) return std::nullopt;
    text.remove_prefix(digits);
    const size_t letters = std::min(text.find_first_of("0123456789."), text.size());
    const std::string_view unit = text.substr(0, letters);
    const double seconds = unit == "ms" ? 1e-3 : unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
    if (seconds == 0) return std::nullopt;
    sum += *amount * seconds;
    text.remove_prefix(letters);
  }
  return from_seconds(std::min(sum, kMostReset));
}

RateNews rate_news_of(const std::map<std::string, std::string>& headers, double unix_now) {
  RateNews news;
  const auto read = [&](const std::string& of, std::optional<double>& left, Duration& reset) {
    for (const auto& [left_name, reset_name] :
         {std::pair{"x-ratelimit-remaining-" + of, "x-ratelimit-reset-" + of},
          {"anthropic-ratelimit-" + of + "-remaining", "anthropic-ratelimit-" + of + "-reset"}}) {
      const auto number = wire::header_number(header(headers, left_name));
      const auto span = until(header(headers, reset_name), unix_now);
      if (!number || !span) continue;
      left = number;
      reset = *span;
    }
  };
  read("requests", news.requests_left, news.requests_reset);
  read("tokens", news.tokens_left, news.tokens_reset);
  return news;
}

}  // namespace tandem::gateway
