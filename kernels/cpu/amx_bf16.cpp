#define TANDEM_ISA amx_bf16
#define TANDEM_TILES 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/all_operations.inl"

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

// A hypervisor may show the tiles and not have them in order: one small product tells.
bool tiles_multiply() {
  constexpr int kRowsOfLeft = 3, kDepth = 70;
  alignas(64) bf16 left[kRowsOfLeft * kDepth], panel[kDepth * kPanelColumns];
  alignas(64) float sums[kRowsOfLeft * kPanelColumns];
  for (int i = 0; i < kRowsOfLeft * kDepth; ++i) left[i] = to_bf16(static_cast<float>(i % 7 - 3));
  for (int i = 0; i < kDepth * kPanelColumns; ++i) panel[i] = to_bf16(static_cast<float>(i % 11 - 5));
  amx_bf16::product_tile({left, kDepth}, kRowsOfLeft, panel, kDepth, sums);
  for (int row = 0; row < kRowsOfLeft; ++row) {
    for (int column = 0; column < kPanelColumns; ++column) {
      float expected = 0;  // small whole numbers: exact in any order
      for (int k = 0; k < kDepth; ++k) {
        const bf16 right = panel[k / 2 * kPanelColumns * 2 + column * 2 + k % 2];
        expected += to_float(left[row * kDepth + k]) * to_float(right);
      }
      if (sums[row * kPanelColumns + column] != expected) return false;
    }
  }
  return true;
}

}  // namespace

bool amx_bf16_works() {
  static const bool works = processor_has_tiles() && kernel_allows_tiles() && tiles_multiply();
  return works;
}
const CpuOperations& amx_bf16_operations() { return amx_bf16::kOperations; }

}  // namespace tandem::kernels
