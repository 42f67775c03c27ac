#include "envs/fleet/pressure.h"

#include <charconv>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kSmallFile = 4096;

// "some avg10=12.34 avg60=..." in per cent.
std::optional<double> share_in(const std::string& text) {
  constexpr std::string_view kBefore = "some avg10=";
  if (!text.starts_with(kBefore)) return std::nullopt;
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data() + kBefore.size(), text.data() + text.size(), percent);
  if (error != std::errc() || !(percent >= 0 && percent <= 100)) return std::nullopt;
  return percent / 100;
}

}  // namespace

std::optional<Pressure> read_pressure(const fs::path& folder, std::string_view suffix) {
  const auto share = [&](std::string_view of) {
    return share_in(read_file(folder / std::string(of).append(suffix), kSmallFile).value_or(""));
  };
  const auto cpu = share("cpu"), memory = share("memory"), io = share("io");
  if (!cpu || !memory || !io) return std::nullopt;
  return Pressure{*cpu, *memory, *io};
}

std::optional<Pressure> read_pressure() {
  const auto groups = read_file("/proc/self/cgroup", kSmallFile).value_or("");
  for (const auto line : split(groups, '\n')) {
    if (!line.starts_with("0::")) continue;
    if (const auto own = read_pressure(fs::path("/sys/fs/cgroup" + std::string(line.substr(3))), ".pressure"))
      return own;
  }
  return read_pressure("/proc/pressure", "");
}

}  // namespace tandem::envs
