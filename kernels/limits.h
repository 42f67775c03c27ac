// Measured peak arithmetic and read bandwidth of this machine: the limits that `tandem bench` prints.
//
// Thread safety: as gemm.h. Each takes about 0.25 s and expects an idle machine.
#pragma once

#include "kernels/stream.h"

namespace tandem::kernels {

// FLOP/s of the instruction that products are made of (bf16 dot products or fused multiply-adds), operands in
// registers.
double measure_peak_flops(Stream& stream);

// Bytes/s that all threads of the stream read together from memory that no cache holds.
double measure_read_bandwidth(Stream& stream);

}  // namespace tandem::kernels
