// Files in /proc and /sys of a sandbox, with its own limits in place of those of the host.
//
// Pure, but for reading what every program can ask its processor and the kernel for (flags, number of processors, time
// of the start).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::envs {

// Names in /proc, and their texts.
std::vector<std::pair<std::string, std::string>> machine_files(uint64_t memory_bytes);

// Paths in /sys, and their texts: the processors that there may be, are there, and run.
std::vector<std::pair<std::string, std::string>> processor_files();

// Whether something in /proc that is no process stays as the kernel has it: what is of the process that reads it, and
// nothing that tells of the host or sets it.
bool is_shown_of_proc(std::string_view name);

}  // namespace tandem::envs
