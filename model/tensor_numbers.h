// The numbers of a checkpoint's tensor as floats, or rounded to bf16.
//
// Pure functions; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "model/safetensors.h"

namespace tandem::model {

// bf16, f16 and f32 are read; kInvalid names another format, or a number of elements that is not the target's.
Status copy_numbers(const TensorView& tensor, std::string_view name, std::span<float> target);
Status copy_numbers(const TensorView& tensor, std::string_view name, std::span<kernels::bf16> target);

}  // namespace tandem::model
