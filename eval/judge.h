// From what a folder holds to the verdict on it.
#pragma once

#include "eval/outcome_files.h"

namespace tandem::eval {

// Checks early whether judge() would refuse the comparison. kInvalid or kCorrupt where `against`, or the blessed
// evaluation beside `folder`, cannot be read, where `against` is `folder`, or shares no task with this one.
Status check_comparable(const Identity& identity, const fs::path& folder, const fs::path& against);

// Compares with the evaluation in `against`, where that is not empty, and with the blessed evaluation where one lies
// beside `folder`. kInvalid where one of them cannot be read.
Result<Verdict> judge(const Identity& identity, const std::map<SampleKey, SampleResult>& samples,
                      const fs::path& folder, const Terms& terms, const fs::path& against);

}  // namespace tandem::eval
