// The operations with AVX2 and FMA.
#define TANDEM_ISA avx2
#include "kernels/cpu/all_operations.inl"

namespace tandem::kernels {
const CpuOperations& avx2_operations() { return avx2::kOperations; }
}  // namespace tandem::kernels
