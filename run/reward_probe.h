// Tries the rewards of a config before a run depends on them.
#pragma once

#include "base/json.h"
#include "run/config.h"

namespace tandem::run {

// Asks each reward program, server and judge once about a sample episode: an attempt without success at a task of the
// config, in a place as in a run. Returns what they said: {"terms": {NAME: NUMBER}, "seconds": NUMBER}; null where the
// config has none. kUnfit, in words, where one cannot be asked, is too slow (reward.seconds) or answers what a run
// would refuse.
Result<Json> probe_rewards(const RunConfig& config);

}  // namespace tandem::run
