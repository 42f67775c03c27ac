// What the kernel says of a process in /proc/PID/stat.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {

// From the state on, which is behind the name, that may have spaces and parentheses of its own; empty where there is no
// such process. The parent is field 1, the time of its start (ticks since the boot) field 19.
inline std::vector<std::string> process_fields(std::string_view process) {
  const auto stat = read_file("/proc/" + std::string(process) + "/stat", 4096).value_or("");
  const auto end = stat.rfind(')');
  if (end == std::string::npos) return {};
  const auto fields = split(trim(std::string_view(stat).substr(end + 1)), ' ');
  return {fields.begin(), fields.end()};
}

}  // namespace tandem::envs
