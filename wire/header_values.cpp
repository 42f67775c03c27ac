#include "wire/header_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "base/iso_time.h"

namespace tandem::wire {

std::optional<double> header_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

std::optional<double> header_date(std::string_view text) {
  const std::string owned(text);
  std::tm time{};
  const char* const rest = ::strptime(owned.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
  if (rest != nullptr && *rest == '\0') return static_cast<double>(::timegm(&time));
  auto iso = parse_iso_time(owned);
  if (!iso) return std::nullopt;
  return static_cast<double>(::timegm(&*iso));
}

std::optional<Duration> retry_after_of(const std::map<std::string, std::string>& headers, double unix_now) {
  constexpr double kMostWait = 3600;  // seconds
  const auto value = [&](const char* name) {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  };
  if (const auto milliseconds = header_number(value("retry-after-ms")))
    return from_seconds(std::min(*milliseconds / 1000, kMostWait));
  const std::string_view text = value("retry-after");
  if (const auto seconds = header_number(text)) return from_seconds(std::min(*seconds, kMostWait));
  const auto date = text.empty() ? std::nullopt : header_date(text);
  if (!date) return std::nullopt;
  return from_seconds(std::clamp(*date - unix_now, 0.0, kMostWait));
}

}  // namespace tandem::wire
