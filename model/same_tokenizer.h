// Whether an id is the same text to two models: a teacher and its pupil, a model and the small one that drafts for it.
//
// Thread safety: a function of files.
#pragma once

#include <string_view>

#include "base/file.h"

namespace tandem::model {

// Compares the tokenizers of two model directories. kInvalid names both, with the first token that differs; `other` is
// called "the WHAT".
Status check_same_tokenizer(const fs::path& other, const fs::path& model, std::string_view what);

}  // namespace tandem::model
