// The operations with AVX-512 and its bf16 dot product.
#define TANDEM_ISA avx512_bf16
#include "kernels/cpu/all_operations.inl"

namespace tandem::kernels {
const CpuOperations& avx512_bf16_operations() { return avx512_bf16::kOperations; }
}  // namespace tandem::kernels
