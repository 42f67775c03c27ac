// Whether a run that came to its end has done what it was for: a failure that is told as success costs whoever
// believes it the most.
#pragma once

#include <string>
#include <vector>

#include "dashboard/run_files.h"

namespace tandem::dashboard {

// What makes a finished run worth nothing, a sentence each: a phase in which no episode had a reward, or so many
// groups without a difference between rewards that nothing can have been learned. Empty where all is well.
std::vector<std::string> lacks_of(const RunFiles& run);

// What is worth a word although it may be chance: no group of a short run had a signal. Empty otherwise.
std::string note_of(const RunFiles& run);

}  // namespace tandem::dashboard
