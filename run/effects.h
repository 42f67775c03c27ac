// Finds config values that were given and have no effect.
#pragma once

#include <string>
#include <vector>

#include "run/config.h"

namespace tandem::run {

// A sentence for each key of `schema` that was given a value and has no effect with the others, with its place.
// Deterministic; in the order of the config's keys.
std::vector<std::string> without_effect(const RunConfig& config, const Schema& schema);

}  // namespace tandem::run
