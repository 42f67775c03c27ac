// The number format of the products inside the layers: of the weights, and of the activations that meet them.
//
// In fp8 and mxfp8 both sides are E4M3 with a power of two as the scale of each block (kernels/quantize.h): fp8 has
// blocks of 128 x 128 in weights and of 1 x 128 in activations, mxfp8 of 1 x 32 in both, along what is summed over. The
// products are those of the values that the codes stand for, which bf16 holds exactly, by the kernels and in the order
// of bf16. Embedding, head, norms, attention and the residual stream stay bf16. In float32 all of a model is fp32, keys
// and values included, and nothing is rounded; it is for comparing, not for training.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quantize.h"

namespace tandem::model {

enum class WeightFormat : uint8_t { kBf16, kFp8, kMxfp8, kFloat32 };
constexpr std::array<const char*, 4> kWeightFormatNames = {"bf16", "fp8", "mxfp8", "float32"};  // by number

constexpr const char* to_string(WeightFormat format) { return kWeightFormatNames[static_cast<size_t>(format)]; }
constexpr bool is_quantised(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kMxfp8;
}
// Formats in which a bf16 model may be trained and sampled.
std::vector<std::string> weight_format_names();
// One of these; kInvalid names them.
Result<WeightFormat> weight_format_named(std::string_view name);

// Columns of a block of this format, which is quantised; and the rows of a weight's block.
constexpr int block_columns(WeightFormat format) {
  return format == WeightFormat::kFp8 ? kernels::kScaleBlock : kernels::kMicroscaleBlock;
}
constexpr int block_rows(WeightFormat format) { return format == WeightFormat::kFp8 ? kernels::kScaleBlock : 1; }

// Activations as a format gives them back. Keeps its memory from call to call. Thread safety: none.
class QuantizedActivations {
 public:
  // `x` is [rows][columns], dense. The result is valid until the next call; it is `x` itself where the format is not
  // quantised.
  Result<const kernels::bf16*> of(kernels::Stream& stream, WeightFormat format, const kernels::bf16* x, int rows,
                                  int columns);

 private:
  std::vector<kernels::bf16> values_;
};

}  // namespace tandem::model
