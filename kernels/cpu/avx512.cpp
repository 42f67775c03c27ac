// The operations with AVX-512.
#define TANDEM_ISA avx512
#include "kernels/cpu/all_operations.inl"

namespace tandem::kernels {
const CpuOperations& avx512_operations() { return avx512::kOperations; }
}  // namespace tandem::kernels
