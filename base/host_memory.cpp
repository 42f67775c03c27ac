#include "base/host_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/text.h"

namespace tandem {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes a number near 2^63

std::string words_of(const fs::path& path) { return read_file(path, uint64_t{1} << 20).value_or(""); }

// The number after `name` in a file of names and numbers.
std::optional<uint64_t> figure(std::string_view text, std::string_view name) {
  for (const auto line : split_lines(text)) {
    if (!line.starts_with(name)) continue;
    const auto rest = trim(line.substr(name.size()));
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') continue;
    return std::strtoull(std::string(rest).c_str(), nullptr, 10);
  }
  return std::nullopt;
}

std::optional<uint64_t> number_in(const fs::path& path) { return figure(words_of(path), ""); }

// The folders of the process's control group and of those around it, the innermost first, with their names.
struct MemoryGroup {
  fs::path folder;
  std::string name;
  bool is_first_version = false;
};
std::vector<MemoryGroup> memory_groups(const MemoryFiles& files) {
  std::vector<MemoryGroup> groups;
  const std::string text = words_of(files.proc / "self/cgroup");
  for (const auto line : split_lines(text)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto kinds = split(line.substr(first + 1, second - first - 1), ',');
    const bool is_first = std::find(kinds.begin(), kinds.end(), "memory") != kinds.end();
    if (!is_first && second != first + 1) continue;
    fs::path path(line.substr(second + 1));
    const fs::path root = is_first ? files.groups / "memory" : files.groups;
    for (;; path = path.parent_path()) {
      groups.push_back({root / path.relative_path(), path.string(), is_first});
      if (!path.has_relative_path()) break;
    }
  }
  return groups;
}

std::string gibibytes(uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
}

}  // namespace

MemoryRoom memory_room(const MemoryFiles& files) {
  const std::string machine = words_of(files.proc / "meminfo");
  MemoryRoom room{.free = figure(machine, "MemAvailable:").value_or(0) << 10,
                  .limit = figure(machine, "MemTotal:").value_or(0) << 10,
                  .of = "this machine"};
  for (const auto& group : memory_groups(files)) {
    const bool first = group.is_first_version;
    const auto limit = number_in(group.folder / (first ? "memory.limit_in_bytes" : "memory.max"));
    if (!limit || *limit >= kNoLimit) continue;
    const auto used = number_in(group.folder / (first ? "memory.usage_in_bytes" : "memory.current")).value_or(0);
    const auto files_kept =
        figure(words_of(group.folder / "memory.stat"), first ? "total_inactive_file " : "inactive_file ").value_or(0);
    const uint64_t held = used - std::min(used, files_kept);
    const uint64_t free = *limit - std::min(*limit, held);
    if (room.free == 0 || free < room.free) room.free = free;
    if (room.limit == 0 || *limit < room.limit) {
      room.limit = *limit;
      room.of = fmt::format("the control group {}", group.name);
    }
  }
  return room;
}

uint64_t available_memory() { return memory_room().free; }

uint64_t address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur;
}

uint64_t memory_kills(const MemoryFiles& files) {
  for (const auto& group : memory_groups(files)) {
    const char* const name = group.is_first_version ? "memory.oom_control" : "memory.events";
    if (const auto kills = figure(words_of(group.folder / name), "oom_kill ")) return *kills;
  }
  return figure(words_of(files.proc / "vmstat"), "oom_kill ").value_or(0);
}

std::string memory_warning(uint64_t all, uint64_t largest, const MemoryRoom& room, uint64_t address_space) {
  if (address_space > 0 && largest > address_space) {
    return fmt::format("the largest process needs {} at most, and each may have {} (ulimit -v)", gibibytes(largest),
                       gibibytes(address_space));
  }
  if (room.limit > 0 && all > room.limit)
    return fmt::format("{} are needed at most, and {} may have {}", gibibytes(all), room.of, gibibytes(room.limit));
  if (room.free > 0 && all > room.free) {
    return fmt::format("{} are needed at most, and {} of {} are free ({})", gibibytes(all), gibibytes(room.free),
                       gibibytes(room.limit), room.of);
  }
  return "";
}

}  // namespace tandem
