#include "envs/sandbox/machine_files.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// The value of a line "KEY : VALUE" or "KEY VALUE"; empty where there is none.
std::string value_of(std::string_view text, std::string_view key) {
  for (auto line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == ':')) line.remove_prefix(1);
    return std::string(line);
  }
  return "";
}

std::string processor_text(int count) {
  const auto host = read_file("/proc/cpuinfo").value_or("");
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "processor\t: " + std::to_string(i) + "\n";
    for (const char* key : {"vendor_id", "cpu family", "model", "stepping", "cpu MHz", "cache size"}) {
      if (const auto value = value_of(host, key); !value.empty()) text += std::string(key) + "\t: " + value + "\n";
    }
    text += "model name\t: sandbox\nphysical id\t: 0\nsiblings\t: " + std::to_string(count) +
            "\ncore id\t\t: " + std::to_string(i) + "\ncpu cores\t: " + std::to_string(count) + "\n";
    for (const char* key : {"flags", "Features", "bogomips"}) {
      if (const auto value = value_of(host, key); !value.empty()) text += std::string(key) + "\t: " + value + "\n";
    }
    text += "\n";
  }
  return text;
}

std::string memory_text(uint64_t bytes) {
  const auto total = std::to_string(bytes / 1024);
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    std::string line = std::string(name) + ":";
    line.resize(std::max<size_t>(line.size() + 1, 25 - std::min<size_t>(value.size(), 9)), ' ');
    text += line + value + " kB\n";
  };
  for (const char* name : {"MemTotal", "MemFree", "MemAvailable"}) add(name, total);
  for (const char* name : {"Buffers", "Cached", "SwapCached", "Active", "Inactive", "Unevictable", "Mlocked",
                           "SwapTotal", "SwapFree", "Dirty", "Writeback", "AnonPages", "Mapped", "Shmem", "Slab",
                           "SReclaimable", "SUnreclaim", "KernelStack", "PageTables"})
    add(name, "0");
  add("CommitLimit", total);
  add("Committed_AS", "0");
  return text;
}

std::string statistics_text(int count) {
  constexpr const char* kNone = " 0 0 0 0 0 0 0 0 0 0\n";
  std::string text = std::string("cpu ") + kNone;
  for (int i = 0; i < count; ++i) text += "cpu" + std::to_string(i) + kNone;
  // By it and the times that processes began at, programs tell for how long those have run.
  const auto began = value_of(read_file("/proc/stat").value_or(""), "btime");
  return text + "intr 0\nctxt 0\nbtime " + (began.empty() ? "0" : began) +
         "\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_files(uint64_t memory_bytes) {
  // The machine's number is the same for as long as it runs; to read it takes the kernel a while.
  static const int count = processors();
  static const std::string processor = processor_text(count), statistics = statistics_text(count);
  return {{"cpuinfo", processor},
          {"meminfo", memory_text(memory_bytes)},
          {"stat", statistics},
          {"loadavg", "0.00 0.00 0.00 1/1 1\n"},
          {"vmstat", "nr_free_pages 0\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\n"},
          {"swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"}};
}

std::vector<std::pair<std::string, std::string>> processor_files() {
  static const int count = processors();
  const auto text = (count > 1 ? "0-" + std::to_string(count - 1) : "0") + "\n";
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"possible", "present", "online"})
    files.emplace_back(std::string("/sys/devices/system/cpu/") + name, text);
  return files;
}

bool is_shown_of_proc(std::string_view name) {
  constexpr std::string_view kShown[] = {"self", "thread-self", "mounts", "net", "filesystems", "version", "uptime"};
  return std::find(std::begin(kShown), std::end(kShown), name) != std::end(kShown) ||
         (!name.empty() && name.front() >= '0' && name.front() <= '9');
}

}  // namespace tandem::envs
