// Self-distillation with hints: a sample as it reads behind the hint of its prompt. The model's own logprobs there
// stand for a teacher's (teacher_term.h), since the model with the hint knows better than without.
//
// Sources: SDPO (arXiv 2601.20802) and OPSD (arXiv 2601.18734).
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

#include "trainer/learn/learner.h"

namespace tandem::trainer {

// The sample with the hint in its prompt, and in that of each later segment which begins with the same tokens. Its
// trained tokens are the same, in the same order, with what they were drawn from; it has no routes and no reward.
Sample behind_hint(const Sample& sample);

// The samples with `logprobs` behind their hints as those of a teacher: a row for each sample with a hint, of the
// trained tokens. A sample without one has the sampler's, which teach nothing.
std::vector<Sample> taught_by_hints(std::span<const Sample> samples, std::span<const std::vector<double>> logprobs);

// Metrics: the share of the samples that have a hint. 0 of none.
double hinted_share(std::span<const Sample> samples);

}  // namespace tandem::trainer
