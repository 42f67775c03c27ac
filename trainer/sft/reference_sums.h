// What the model that a training on pairs starts from says of each answer: the sum of its logprobs.
//
// They are needed in every epoch and stay the same, so they are computed once, without a second model in memory, and
// kept in a file from which an interrupted computation goes on. Thread safety: none.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "trainer/learn/learner.h"
#include "trainer/sft/sample_set.h"

namespace tandem::trainer {

struct ReferenceSums {
  std::vector<double> train, validation;  // by sample
};

// `learner` has the weights of that model still. `file`: JSON Lines, the first with the digest of the samples; one of
// other samples is begun anew. `tell` gets an event "reference" now and then. Nothing where `stop` was requested.
Result<std::optional<ReferenceSums>> reference_sums(const fs::path& file, const SampleSet& samples, Learner& learner,
                                                    const std::function<void(const Json&)>& tell,
                                                    const std::stop_token& stop);

}  // namespace tandem::trainer
