#include "envs/sandbox/usage.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "envs/sandbox/process_fields.h"
#include "envs/sandbox/process_handle.h"

namespace tandem::envs {
namespace {

constexpr size_t kUsageSmallFile = 1 << 16;
constexpr size_t kMostProcesses = 4096;  // that are looked at one by one

std::string small_file(const std::string& path) { return read_file(path, kUsageSmallFile).value_or(""); }

// The process behind a pidfd, or 0 where it has ended.
pid_t process_of(const FileDescriptor& handle) {
  const auto info = small_file("/proc/self/fdinfo/" + std::to_string(handle.get()));
  const auto at = info.find("\nPid:");
  const auto process = at == std::string::npos ? 0 : atoi(info.c_str() + at + 5);
  return process > 0 ? process : 0;
}

// "KEY 123" on a line of its own.
uint64_t count_of(const std::string& text, std::string_view key) {
  for (const auto line : split(text, '\n')) {
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ')
      return strtoull(std::string(line.substr(key.size() + 1)).c_str(), nullptr, 10);
  }
  return 0;
}

// The group's folder for a controller of version 1, or in version 2 where `controller` is empty; empty where the
// process is in none of ours.
std::string folder_of(const std::string& groups, std::string_view controller) {
  for (const auto line : split(groups, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3 || parts[1] != controller) continue;
    if (!fs::path(parts[2]).filename().string().starts_with("tandem-")) return "";
    return "/sys/fs/cgroup/" + std::string(controller) + std::string(parts[2]);
  }
  return "";
}

// Beside the processes of a sandbox the group has its maker in it, and where bubblewrap has made it, that.
int processes_beside(pid_t first, const std::string& groups) {
  const auto fields = process_fields(std::to_string(first));
  return fields.size() > 1 && small_file("/proc/" + fields[1] + "/cgroup") == groups ? 2 : 1;
}

// Groups are used again, and files that others have read there before still count in their sum.
std::optional<SandboxUsage> usage_of_group(pid_t process) {
  const auto groups = small_file("/proc/" + std::to_string(process) + "/cgroup");
  const auto unified = folder_of(groups, "");
  const auto memory = unified.empty() ? folder_of(groups, "memory") : unified;
  const auto processes = unified.empty() ? folder_of(groups, "pids") : unified;
  if (memory.empty() || processes.empty()) return std::nullopt;
  const auto counts = small_file(memory + "/memory.stat");
  const auto current = atoi(small_file(processes + "/pids.current").c_str());
  if (counts.empty() || current <= 0) return std::nullopt;
  return SandboxUsage{.memory_bytes = count_of(counts, unified.empty() ? "rss" : "anon") + count_of(counts, "shmem"),
                      .processes = static_cast<uint32_t>(std::max(0, current - processes_beside(process, groups)))};
}

SandboxUsage usage_of_descendants(pid_t first) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  SandboxUsage usage;
  std::vector<pid_t> left = {first};
  while (!left.empty() && usage.processes < kMostProcesses) {
    const auto folder = "/proc/" + std::to_string(left.back());
    left.pop_back();
    const auto sizes = small_file(folder + "/statm");
    if (sizes.empty()) continue;
    ++usage.processes;
    const auto words = split(sizes, ' ');
    if (words.size() > 1) usage.memory_bytes += page * strtoull(std::string(words[1]).c_str(), nullptr, 10);
    std::error_code error;
    for (const auto& thread : fs::directory_iterator(folder + "/task", error)) {
      const auto children = small_file(thread.path().string() + "/children");
      for (const auto child : split(trim(children), ' ')) {
        if (!child.empty()) left.push_back(atoi(std::string(child).c_str()));
      }
    }
  }
  return usage;
}

}  // namespace

SandboxUsage usage_of(const FileDescriptor& first) {
  if (has_ended(first)) return {};
  const pid_t process = process_of(first);
  if (process == 0) return {};
  if (const auto usage = usage_of_group(process)) return *usage;
  return usage_of_descendants(process);
}

}  // namespace tandem::envs
