// Whether AMX is to be had, compiled for every machine: the code that uses it is not.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/operations.h"

namespace tandem::kernels {
namespace {

bool processor_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kOsSavesStates = 1u << 27;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsSavesStates) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileStates = 3u << 17;
  return (low & kTileStates) == kTileStates;
}

// Linux gives the large state of the tiles to those who ask.
bool kernel_allows_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool amx_bf16_works() {
  static const bool works = processor_has_tiles() && kernel_allows_tiles() && amx_bf16_multiplies();
  return works;
}

}  // namespace tandem::kernels
