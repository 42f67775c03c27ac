// A device, as a config or a command line names it. A value.
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
  // How a GPU computes products: by tensor cores, or by chains of fused multiply-adds, whose bits are those of AVX2.
  enum class Kernels : uint8_t { kExact, kTensor };
  Kernels kernels = Kernels::kExact;

  bool on_cpu() const { return kind == Kind::kCpu; }
  friend bool operator==(const Device&, const Device&) = default;
};

// "auto", "cpu", "cpu:avx2", "cuda:0", "cuda:0:tensor", "emulated:0", "emulated:0:tensor"; ":exact" may be said, too.
// kInvalid: a word that is none of them.
Result<Device> device_named(std::string_view text);
std::string to_string(const Device& device);

// Resolves `auto` to the first GPU that the library has code for, else the CPU. kUnfit, with the reason, where a device
// is missing.
Result<Device> find_device(const Device& wanted);

// The id of the device's arithmetic: of its instruction set, of AVX2 for a GPU's `exact` kernels, else of its tensor
// cores. kUnfit where the device is missing.
Result<std::string> numerics_id(const Device& device, std::string_view format);

// Parses and finds the device of `--device`, or of a config key.
Result<Device> find_device(std::string_view text);

}  // namespace tandem::kernels
