// Pressure stall information of Linux: the share of time in which work waited for CPU, memory or I/O
// (Documentation/accounting/psi.rst).
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace tandem::envs {

// Shares, 0 to 1, of the last 10 s in which at least one task waited.
struct Pressure {
  double cpu = 0, memory = 0, io = 0;
};

// The pressure of this process's control group, which its sandboxes share, where it is of version 2, else of the
// machine. None where the kernel does not count it.
std::optional<Pressure> read_pressure();

// Reads a folder with files cpu, memory and io, their names behind `suffix` ("cpu.pressure").
std::optional<Pressure> read_pressure(const std::filesystem::path& folder, std::string_view suffix);

}  // namespace tandem::envs
