// What computes, as a config or a command line names it: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/stream.h"

namespace tandem::kernels {

struct Device {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda, kEmulated };
  Kind kind = Kind::kAuto;
  std::optional<Isa> isa = {};  // of a CPU; none: the fastest
  int index = 0;                // of a GPU, real or emulated

  bool on_cpu() const { return kind == Kind::kCpu; }
  friend bool operator==(const Device&, const Device&) = default;
};

// "auto", "cpu", "cpu:avx2", "cuda:0", "emulated:0". kInvalid: a word that is none of them.
Result<Device> device_named(std::string_view text);
std::string to_string(const Device& device);

// Of `auto` what it stands for here: the first GPU that the library has code for, else the CPU. kUnfit where a device
// is not there, with what is missing.
Result<Device> find_device(const Device& wanted);

// Of a command's `--device`, or of a key of that name: both of the above.
Result<Device> find_device(std::string_view text);

}  // namespace tandem::kernels
