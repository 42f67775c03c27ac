// Checks and loads a teacher from its directory (Learner::keep_teacher).
//
// Logprobs of two models can be compared token by token only where an id is the same text to both.
//
// Thread safety: pure functions of files.
#pragma once

#include "base/file.h"
#include "model/weights.h"

namespace tandem::trainer {

// Reads no weights. kInvalid names both directories where the tokenizers differ, with the first token that does, where
// the teacher's vocabulary is smaller than the model's, and where it takes fewer than `max_tokens` positions.
Status check_teacher(const fs::path& teacher, const fs::path& model, int max_tokens = 0);

// The weights, to be read alone, in the format of the model's. The errors of check_teacher and model::load_weights.
Result<model::Weights> load_teacher(const fs::path& teacher, const fs::path& model, model::WeightFormat format);

}  // namespace tandem::trainer
