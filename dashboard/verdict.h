// Whether a run that came to its end has done what it was for: a failure that is told as success costs whoever
// believes it the most.
#pragma once

#include <string>
#include <vector>

#include "dashboard/run_files.h"

namespace tandem::dashboard {

// Reasons why a finished run is worthless, a sentence each: a phase in which no episode had a reward, or so many groups
// without a difference between rewards that nothing can have been learned. Empty where all is well.
std::vector<std::string> lacks_of(const RunFiles& run);

// Warns where no group of a short run had a signal, which may be chance. Empty otherwise.
std::string note_of(const RunFiles& run);

}  // namespace tandem::dashboard
