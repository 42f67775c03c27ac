// From bf16 to E4M3 with a power of two as the scale of each block, and back: value = to_float(code) * to_float(scale).
//
// A block's scale is the least power of two, at least 2^-126, by which its largest magnitude divided is at most 448;
// a code is x / scale, an IEEE division, rounded to nearest, ties to even (formats/e4m3.h). So nothing in a finite
// block is ever clipped, every scale is a normal float, and undoing a scale moves exponents only. Blocks never see each
// other: a row has the same bits alone and among others.
//
// A block of zeros has the scale 2^-126; zeros keep their sign. Denormals count as what they are. A block that holds an
// infinity or NaN has the scale NaN and all its codes are NaN (0x7f): a product over it would not be finite either, and
// clipping would hide that.
//
// The last block of a row or column is what is left of it. Bits are the same on all instruction sets.
//
// Values come back exactly: E4M3 has fewer bits than bf16, and a scale moves exponents only. Where that leaves the
// range of bf16's normal numbers they are rounded to nearest, ties to even. NaN, of a code or of a scale, is 0x7fc0.
// Quantising dequantised values again gives the same values, though a block may then have half the scale.
//
// Thread safety: as gemm.h.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"
#include "kernels/stream.h"

namespace tandem::kernels {

constexpr int kScaleBlock = 128;      // of fp8
constexpr int kMicroscaleBlock = 32;  // of mxfp8

// How many blocks `count` elements make.
constexpr size_t scale_blocks(int count, int block) { return (static_cast<size_t>(count) + block - 1) / block; }

// Activations and gradients, in one pass over x: as rows for products over columns, as columns for products over rows.
// A form whose two pointers are null is left out.
struct Quantize {
  const bf16* x = nullptr;        // [rows][columns], `stride` elements from row to row
  size_t stride = 0;              // at least columns
  e4m3* by_row = nullptr;         // [rows][columns], dense
  e8m0* row_scales = nullptr;     // [rows][scale_blocks(columns)]: of 1 x block elements
  e4m3* by_column = nullptr;      // [columns][rows], dense: the transpose
  e8m0* column_scales = nullptr;  // [columns][scale_blocks(rows)]: of block x 1 elements
  int rows = 0, columns = 0;
  int block = kScaleBlock;  // or kMicroscaleBlock
};
// kInvalid names the argument: null x, one pointer of a form without the other, no form, a stride below columns,
// negative sizes, another block.
Status quantize(Stream& stream, const Quantize& arguments);

// A weight in blocks of 128 x 128: [rows][columns] to out of the same layout and scales
// [scale_blocks(rows)][scale_blocks(columns)], all dense. kInvalid names a null pointer or a negative size.
Status quantize_weight(Stream& stream, const bf16* weight, int rows, int columns, e4m3* out, e8m0* scales);

// Dequantizes rows and weights.
struct Expand {
  const e4m3* codes = nullptr;   // [rows][columns], dense
  const e8m0* scales = nullptr;  // [scale_blocks(rows, block_rows)][scale_blocks(columns, block)]
  bf16* out = nullptr;           // [rows][columns], dense
  int rows = 0, columns = 0;
  int block = kScaleBlock;  // columns of a block; or kMicroscaleBlock
  int block_rows = 1;       // or kScaleBlock, a weight's
};
// kInvalid names the argument: a null pointer, a negative size, another block.
Status expand(Stream& stream, const Expand& arguments);

// `quantize` followed by `expand` in one pass, without storing the codes.
struct RoundToCodes {
  const bf16* x = nullptr;  // [rows][columns], dense
  bf16* out = nullptr;      // [rows][columns], dense; may be x itself
  int rows = 0, columns = 0;
  int block = kScaleBlock;  // or kMicroscaleBlock
};
// kInvalid names the argument: a null pointer, a negative size, another block.
Status round_to_codes(Stream& stream, const RoundToCodes& arguments);

}  // namespace tandem::kernels
