// What metrics.jsonl says of a step (docs/run-directory.md).
//
// Thread safety: pure.
#pragma once

#include "base/json.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

Json to_json(const StepMetrics& m);

}  // namespace tandem::trainer
