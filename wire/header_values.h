// Parses values of HTTP headers: numbers, dates, Retry-After.
//
// Thread safety: functions of their arguments.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tandem::wire {

// A decimal number. Empty for anything else, for negative and for infinite numbers.
std::optional<double> header_number(std::string_view text);
// Unix seconds of a date of HTTP, or of ISO 8601 in UTC.
std::optional<double> header_date(std::string_view text);
// Reads Retry-After (seconds, fractions too, or a date) and retry-after-ms; at most an hour. Header names are in lower
// case.
std::optional<Duration> retry_after_of(const std::map<std::string, std::string>& headers, double unix_now);

}  // namespace tandem::wire
