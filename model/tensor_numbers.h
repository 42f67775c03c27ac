// The numbers of a checkpoint's tensor as floats, or rounded to bf16, and how many of them are none.
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

// How many are NaN or infinite: with one such weight every answer of the model is NaN. 0 of formats without such
// numbers.
size_t count_not_finite(std::span<const float> numbers);
size_t count_not_finite(std::span<const kernels::bf16> numbers);
size_t count_not_finite(const TensorView& tensor);

}  // namespace tandem::model
