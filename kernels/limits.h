// What the arithmetic and memory of this machine can do at most, measured: the yardsticks of `tandem bench`.
//
// Thread safety: as gemm.h. Both take about a quarter of a second and want the machine to themselves.
#pragma once

#include "kernels/stream.h"

namespace tandem::kernels {

// FLOP/s of the instruction that products are made of (bf16 dot products or fused multiply-adds), operands in
// registers.
double measure_peak_flops(Stream& stream);

// Bytes/s that all threads of the stream read together from memory that no cache holds.
double measure_read_bandwidth(Stream& stream);

}  // namespace tandem::kernels
