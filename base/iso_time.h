// A time as scripts and configs write it.
#pragma once

#include <ctime>
#include <optional>
#include <string>

namespace tandem {

// "2026-03-01", "2026-03-01T12:30:00", with or without a zone, which is passed over: the time as written.
std::optional<std::tm> parse_iso_time(const std::string& text);

std::tm local_time();  // now

}  // namespace tandem
