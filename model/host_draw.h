// Draws and rankings on the host, of one row of logits: what an executor does itself that has the logits there.
//
// Pure functions over one row; any thread.
#pragma once

#include "model/executor.h"

namespace tandem::model {

// Samples a draw with a mask or a bias. Token -1 where nothing is allowed.
kernels::Sampled draw_allowed(const Draw& draw, std::span<const float> logits, float log_sum);

// The `count` likeliest tokens, at least one, at most all; the likeliest first, ties by id.
std::vector<TokenLogprob> likeliest_of(std::span<const float> logits, float log_sum, int count);

}  // namespace tandem::model
