// The operations with the tiles of AMX.
#define TANDEM_ISA amx_bf16
#define TANDEM_TILES 1
#include "kernels/cpu/all_operations.inl"

namespace tandem::kernels {

bool amx_bf16_multiplies() {
  constexpr int kRowsOfLeft = 3, kDepth = 70;
  alignas(64) bf16 left[kRowsOfLeft * kDepth], panel[kDepth * kPanelColumns];
  alignas(64) float sums[kRowsOfLeft * kPanelColumns];
  for (int i = 0; i < kRowsOfLeft * kDepth; ++i) left[i] = to_bf16(static_cast<float>(i % 7 - 3));
  for (int i = 0; i < kDepth * kPanelColumns; ++i) panel[i] = to_bf16(static_cast<float>(i % 11 - 5));
  amx_bf16::product_tile(amx_bf16::LeftRows<bf16>{left, kDepth}, kRowsOfLeft, panel, kDepth, sums);
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

const CpuOperations& amx_bf16_operations() { return amx_bf16::kOperations; }

}  // namespace tandem::kernels
