// From what a folder holds to the verdict on it.
#pragma once

#include "eval/outcome_files.h"

namespace tandem::eval {

// Compares with the evaluation in `against`, where that is not empty, and with the blessed evaluation where one lies
// beside `folder`. kInvalid where one of them cannot be read, or shares no task with this one.
Result<Verdict> judge(const Identity& identity, const std::map<SampleKey, SampleResult>& samples,
                      const fs::path& folder, const Terms& terms, const fs::path& against);

}  // namespace tandem::eval
