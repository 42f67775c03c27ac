// Asks the teacher of algorithm.teacher.url, before a run depends on it, whether it can teach the run's model.
#pragma once

#include "base/file.h"
#include "base/json.h"
#include "run/config.h"

namespace tandem::cli {

// {"form", "tokens_compared", "seconds"}; null where the config has no such teacher. `model` is the directory whose
// tokenizer it must have; empty: it is not there yet, and nothing is compared. Errors are those of
// trainer::TeacherClient::prepare and of its key.
Result<Json> probe_teacher(const run::RunConfig& config, const fs::path& model);

// What it said, in a line for people.
std::string describe_teacher(const run::RunConfig& config, const Json& tried);

}  // namespace tandem::cli
