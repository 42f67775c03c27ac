#include "base/byte_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace tandem {

Result<uint64_t> bytes_from(std::string_view text) {
  const std::string_view whole = trim(text);
  double number = 0;
  const auto [end, failed] = std::from_chars(whole.data(), whole.data() + whole.size(), number);
  std::string unit(trim(std::string_view(end, static_cast<size_t>(whole.data() + whole.size() - end))));
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.ends_with('b')) unit.pop_back();
  const bool is_binary = unit.size() == 2 && unit[1] == 'i';
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = unit.empty() ? 0 : kPrefixes.find(unit[0]) + 1;
  const bool is_unit = unit.empty() || (power > 0 && (unit.size() == 1 || is_binary));
  const double bytes = number * std::pow(is_binary ? 1024.0 : 1000.0, static_cast<double>(power));
  constexpr double kMost = 4.6e18;
  if (failed != std::errc() || !is_unit || !(bytes >= 0 && bytes <= kMost))
    return fail(Status::invalid(fmt::format("\"{}\" is no number of bytes", text)).hint("write 20GB, 512MiB or 4096"));
  return static_cast<uint64_t>(bytes);
}

}  // namespace tandem
