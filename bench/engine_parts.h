// Helpers of the engine benchmarks.
#pragma once

#include <memory>
#include <vector>

#include "bench/measure.h"

namespace tandem::bench {

std::vector<int32_t> random_tokens(uint64_t seed, int count, int vocabulary);

// Adds what drafts bring: copies and edits, and text that gives no draft a chance. Needs a model with a tokenizer for
// the copies; without one they are left out.
Status add_speculation(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                       std::vector<Figure>& figures);

// Adds decoding with 0, 1, 4 and 8 LoRA adapters in a batch of 8, on a CPU.
Status add_adapters(const std::shared_ptr<const model::Weights>& weights, const Settings& settings,
                    std::vector<Figure>& figures);

}  // namespace tandem::bench
