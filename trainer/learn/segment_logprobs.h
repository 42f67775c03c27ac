// Logprobs of one sequence's tokens, whose segments see nothing of each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/learn/tape.h"

namespace tandem::trainer {

// `picks`: a token's logprob after the token of `tokens` that its row names, ascending. `later_segments` as Sample's.
// One forward pass, in which segments share what they begin with; `logit_scale` as Tape::forward's. `kept`: empty, or
// for each pick what its token was drawn from.
Result<std::vector<float>> logprobs_of(Tape& tape, kernels::Stream& stream, const model::Weights& weights,
                                       std::span<const int32_t> tokens, std::span<const uint32_t> later_segments,
                                       std::span<const TokenPick> picks, float logit_scale,
                                       std::span<const KeptTokens> kept = {});

}  // namespace tandem::trainer
