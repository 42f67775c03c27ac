// The code for AMX over a model of its tiles, so that it is tested on machines that have none.
#define TANDEM_ISA amx_model
#define TANDEM_TILES 2
#include "kernels/cpu/all_operations.inl"

namespace tandem::kernels {
const CpuOperations& amx_model_operations() { return amx_model::kOperations; }
}  // namespace tandem::kernels
