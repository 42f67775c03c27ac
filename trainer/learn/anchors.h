// In which states the turns of sampled episodes began, for advantages that compare turns (AdvantageKind::kGigpo).
//
// A trajectory records tokens and nothing of the workspace, so a state is what the model was shown directly before the
// turn: the tokens since its last word, which are the prompt before the first turn, and the answers of tools later on.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::trainer {

struct Sample;
struct LossBatch;

// Of each sample, for each of its turns, a number: equal where the tokens are equal.
std::vector<std::vector<int64_t>> anchors_of(std::span<const Sample> samples);

// Of the turns after the first, the share whose state another turn of its group was in. 0 where there are none.
double shared_states(const LossBatch& batch);

}  // namespace tandem::trainer
