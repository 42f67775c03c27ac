// How much memory the roles of a run take, by purpose: what the code that takes it says beforehand.
#pragma once

#include "base/json.h"
#include "model/config.h"
#include "run/config.h"

namespace tandem::run {

// {role: {purpose: bytes}}; of rollouts for each one.
Result<Json> memory_of(const RunConfig& config, const model::ModelConfig& model);

}  // namespace tandem::run
