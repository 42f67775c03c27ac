// The keys `algorithm.teacher.*` of a teacher behind an endpoint: contradictions, and where its key is.
//
// Thread safety: functions of their arguments, of the environment and of files.
#pragma once

#include <string>
#include <vector>

#include "run/config.h"

namespace tandem::run {

// Contradictions, a line each; empty: none. Without a temperature of 1, and where tokens are cut off before they are
// drawn, a teacher behind an endpoint is refused: it says logprobs of its whole distribution at temperature 1.
std::vector<std::string> teacher_mistakes(const RunConfig& config);

// The key of the endpoint; empty where it needs none. kUnfit where it is not there.
Result<std::string> teacher_key(const RunConfig& config);

}  // namespace tandem::run
