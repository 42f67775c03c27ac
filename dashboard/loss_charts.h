// The charts of what the loss of a run says of itself, beside what all losses have.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::dashboard {

// HTML of charts by step, of lines of metrics.jsonl: each number of `loss_metrics` by itself, and the loss of each part
// where kinds of task have algorithms of their own. Empty where there are none; of very many the first by name.
std::string loss_charts(const std::vector<Json>& steps);

}  // namespace tandem::dashboard
