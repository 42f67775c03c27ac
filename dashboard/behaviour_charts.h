// The charts of how the episodes of a run work: calls per message, reads before the first edit, time to the result.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::dashboard {

// HTML of a chart for each figure of `behaviour` in lines of metrics.jsonl, a curve for each kind of task, as means of
// `window` steps. Figures that are 0 at every step have none; of very many kinds the first by name are shown.
std::string behaviour_charts(const std::vector<Json>& steps, size_t window);

}  // namespace tandem::dashboard
