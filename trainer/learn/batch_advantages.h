// Advantages of the tokens of a batch from its rewards.
#pragma once

#include "base/status.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

// Not of AdvantageKind::kTorch. `rewards`: of every token, with what the distance from a reference model takes off. 0
// where the mask is 0.
Result<Rows> batch_advantages(const LossBatch& batch, const Rows& rewards, const Algorithm& algorithm);

// (x - mean) / sqrt(var + 1e-8) over the tokens that count, with the unbiased variance.
void whiten(Rows& values, const std::vector<uint8_t>& mask);

// LossBatch::turns; where the batch has none, a turn is a run of tokens that count.
std::vector<int64_t> turns_of(const LossBatch& batch);

}  // namespace tandem::trainer
