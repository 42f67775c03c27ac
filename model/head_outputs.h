// Outputs of a pass of the language model's head.
//
// Thread safety: as any value.
#pragma once

#include <cstdint>

#include "kernels/lm_head.h"

namespace tandem::model {

// Memory of the caller, as kernels::LmHead has it; what is null is not computed, or for scales 1 and for kept tokens
// all.
struct HeadOutputs {
  float* logits = nullptr;
  float* log_sum = nullptr;  // must be given
  int32_t* argmax = nullptr;
  kernels::RunningSum* panel_sums = nullptr;
  const float* logit_scales = nullptr;
  const uint64_t* kept = nullptr;
};

}  // namespace tandem::model
