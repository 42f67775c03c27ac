// Anchor states of turns, for advantages that compare turns which began in the same state (AdvantageKind::kGigpo).
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

// Returns for each turn of each sample a number; equal numbers mean equal tokens.
std::vector<std::vector<int64_t>> anchors_of(std::span<const Sample> samples);

// The share of turns after the first whose state another turn of the group had too. 0 where there are none.
double shared_states(const LossBatch& batch);

}  // namespace tandem::trainer
