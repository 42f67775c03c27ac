#include "base/iso_time.h"

namespace tandem {

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

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::localtime_r(&now, &time);
  return time;
}

}  // namespace tandem
