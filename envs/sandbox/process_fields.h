// Reads fields of processes in /proc.
#pragma once

#include <sys/stat.h>

#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {

// /proc/PID/stat from the state on, which is behind the name, that may have spaces and parentheses of its own; empty
// where there is no such process. The parent is field 1, the time of its start (ticks since the boot) field 19.
inline std::vector<std::string> process_fields(std::string_view process) {
  const auto stat = read_file("/proc/" + std::string(process) + "/stat", 4096).value_or("");
  const auto end = stat.rfind(')');
  if (end == std::string::npos) return {};
  const auto fields = split(trim(std::string_view(stat).substr(end + 1)), ' ');
  return {fields.begin(), fields.end()};
}

// How many there are here, of a user or of all.
inline size_t processes_of(std::optional<unsigned> user) {
  size_t count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    struct stat info {};
    count += isdigit(static_cast<unsigned char>(entry.path().filename().c_str()[0])) &&
             (!user || (stat(entry.path().c_str(), &info) == 0 && info.st_uid == *user));
  }
  return count;
}

}  // namespace tandem::envs
