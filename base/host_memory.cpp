#include "base/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/file.h"

namespace tandem {
namespace {

// A number that a file of the control group holds alone; 0 for "max" and where there is no such file.
uint64_t group_figure(const char* name) {
  for (const char* const folder : {"/sys/fs/cgroup/", "/sys/fs/cgroup/memory/"}) {
    if (const auto text = read_file(folder + std::string(name), 64)) return std::strtoull(text->c_str(), nullptr, 10);
  }
  return 0;
}

}  // namespace

uint64_t available_memory() {
  const std::string text = read_file("/proc/meminfo", 1 << 16).value_or("");
  const size_t at = text.find("MemAvailable:");
  const uint64_t whole = at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 13, nullptr, 10) << 10;
  const uint64_t limit = group_figure("memory.max");
  if (limit == 0) return whole;
  return std::min(whole, limit - std::min(limit, group_figure("memory.current")));
}

}  // namespace tandem
