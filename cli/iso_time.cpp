#include "cli/iso_time.h"

namespace tandem::cli {

std::optional<std::tm> parse_iso_time(const std::string& text) {
  std::tm time{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%d", &time);
  if (rest != nullptr && (*rest == 'T' || *rest == ' ')) {
    const char* after = ::strptime(rest + 1, "%H:%M:%S", &time);
    rest = after != nullptr ? after : ::strptime(rest + 1, "%H:%M", &time);
  }
  if (rest == nullptr) return std::nullopt;
  time.tm_isdst = -1;
  std::tm normal = time;
  ::timegm(&normal);  // fills in the days of week and year
  return normal;
}

}  // namespace tandem::cli
