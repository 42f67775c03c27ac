// Row-wise operations whose rows become E4M3 while they are in the cache: what a product in fp8 takes as its left side.
//
// Each has the bits of its parts called one after the other: `add`, `rms_norm`, `swiglu` or `geglu` of
// transformer_ops.h, then `quantize` of quantize.h by rows. Rows never see each other.
//
// Thread safety: as gemm.h.
#pragma once

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"
#include "kernels/quantize.h"
#include "kernels/stream.h"

namespace tandem::kernels {

struct NormQuantize {
  bf16* x = nullptr;               // [rows][width]; becomes bf16(x + residual) where there is a residual
  const bf16* residual = nullptr;  // [rows][width] or null
  const bf16* weight = nullptr;    // [width]
  bf16* out = nullptr;             // [rows][width], the normed rows; may be null where codes are given
  e4m3* codes = nullptr;           // [rows][width] or null
  e8m0* scales = nullptr;          // [rows][scale_blocks(width, block)], with codes
  float epsilon = 0;
  int rows = 0, width = 0;
  int block = kScaleBlock;  // or kMicroscaleBlock
};
// kInvalid names the argument: a null pointer, codes without scales, neither out nor codes, another block.
Status norm_quantize(Stream& stream, const NormQuantize& arguments);

enum class GateActivation : uint8_t { kSilu, kGeluTanh };

struct GateQuantize {
  const bf16* gate_up = nullptr;  // [rows][2 * width], gate first
  GateActivation activation = GateActivation::kSilu;
  bf16* out = nullptr;    // [rows][width]; may be null where codes are given
  e4m3* codes = nullptr;  // as above
  e8m0* scales = nullptr;
  int rows = 0, width = 0;
  int block = kScaleBlock;  // or kMicroscaleBlock
};
Status gate_quantize(Stream& stream, const GateQuantize& arguments);

}  // namespace tandem::kernels
