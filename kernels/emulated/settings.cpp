#include "kernels/emulated/settings.h"

#include <charconv>

namespace tandem::kernels::emulated {

namespace {

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return {};
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : 0;
  if ((shift == 0 && !unit.empty()) || value > (UINT64_MAX >> shift)) return {};
  return value << shift;
}

}  // namespace

std::optional<Settings> read_settings(std::string_view text) {
  Settings settings;
  while (!text.empty()) {
    const size_t end = text.find(',');
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return {};
    const auto value = number(item.substr(equals + 1));
    const std::string_view key = item.substr(0, equals);
    if (!value) return {};
    if (key == "seed")
      settings.seed = *value;
    else if (key == "memory" && *value >= 4096 && *value <= (uint64_t{1} << 40))
      settings.memory = *value / 4096 * 4096;
    else if (key == "devices" && *value <= 16)
      settings.devices = static_cast<int>(*value);
    else if (key == "lose_at")
      settings.lose_at = *value;
    else if (key == "refuse_at")
      settings.refuse_at = *value;
    else if (key == "graphs")
      settings.graphs = *value;
    else if (key == "shared")
      settings.shared = *value;
    else
      return {};
  }
  return settings;
}

}  // namespace tandem::kernels::emulated
