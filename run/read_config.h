// Reads a config whole: what its keys say one by one, and what they say together.
#pragma once

#include <span>
#include <string>

#include "run/config.h"

namespace tandem::run {

// Reads `file`, the environment and `overrides` into `config` by its schema, and checks it. kInvalid holds all
// mistakes, a line each, with their places. A config that `changes_another` (of a resumed run) has only some of the
// values, so contradictions between keys are left to the caller.
Status read_config(const fs::path& file, std::span<const std::string> overrides, Schema& schema,
                   const RunConfig& config, bool changes_another = false);

// The mistakes of check(), each with the place of the first key in it that the user has given.
Status check_at_places(const RunConfig& config, const Schema& schema);

}  // namespace tandem::run
