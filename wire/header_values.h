// What values of HTTP headers say: numbers, dates, and how long to wait.
//
// Thread safety: functions of their arguments.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tandem::wire {

// Digits with a fraction or without; nothing of anything else, of less than 0 and of what is not finite.
std::optional<double> header_number(std::string_view text);
// Of a date as HTTP has it, or of ISO 8601 in UTC.
std::optional<double> header_date(std::string_view text);
// Of Retry-After in seconds, fractions too, or as a date, and of retry-after-ms; at most an hour. Names in small
// letters.
std::optional<Duration> retry_after_of(const std::map<std::string, std::string>& headers, double unix_now);

}  // namespace tandem::wire
