// What a run leaves when it ends, and what is shown of it.
//
// Thread safety: none needed.
#pragma once

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "run/config.h"

namespace tandem::cli {

// What is left to people and scripts: summary.json, which is returned, report.html, tb/.
Result<Json> conclude(const fs::path& run_dir, const run::RunConfig& config, const Clock& clock);

// What came out, on one screen. `steps` are those of the plan.
void print_result(const fs::path& run_dir, const Json& summary, int steps);

}  // namespace tandem::cli
