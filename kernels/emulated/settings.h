// How emulated devices behave, from the environment variable TANDEM_EMULATED: `seed=7,memory=64m,lose_at=500`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::kernels::emulated {

struct Settings {
  int devices = 8;
  size_t memory = size_t{16} << 30;  // of each; taken only as it is used
  std::optional<uint64_t> seed;      // of the order in which work is done; none: not before somebody waits
  uint64_t lose_at = 0;              // the kernel, counted from 1, at which the device is lost; 0: none
  uint64_t refuse_at = 0;            // the kernel whose launch fails; 0: none
  uint64_t graphs = UINT64_MAX;      // that there is memory for at once
  uint64_t shared = 0;               // processes with the same number have the memory of a device in common; 0: none
};

// Nothing where the text is wrong.
std::optional<Settings> read_settings(std::string_view text);

}  // namespace tandem::kernels::emulated
