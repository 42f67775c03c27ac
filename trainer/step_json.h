// Metrics of a step as metrics.jsonl has them (docs/run-directory.md).
//
// Thread safety: pure.
#pragma once

#include "base/json.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

Json to_json(const StepMetrics& m);

}  // namespace tandem::trainer
