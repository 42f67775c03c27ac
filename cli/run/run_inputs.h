// Prepares a run directory before its roles start: model, teacher, harness profile.
#pragma once

#include "base/file.h"
#include "envs/episodes/profile.h"
#include "run/config.h"
#include "trainer/sft/tiny_model.h"

namespace tandem::cli {

// Whether the adapter that the config says fits the model that is made on the spot.
Status check_tiny_adapter(const run::RunConfig& config);

// Settings of the tiny model that a start creates. kInvalid for an unknown tiny model.
Result<trainer::TinyModelSettings> tiny_settings(const run::RunConfig& config);

// RUN/model: a link to the directory, or the model itself where it is the tiny one or a step of another run.
Status provide_model(const run::RunConfig& config, const fs::path& run_dir);
// RUN/teacher, in the same way; kInvalid where it does not fit the model. One behind an endpoint is asked whether it
// does.
Status provide_teacher(const run::RunConfig& config, const fs::path& run_dir);
// RUN/profile.yaml: what the model trains under until the run ends. kInvalid where it is another by now.
Status record_profile(const fs::path& run_dir, const envs::Profile& profile);

}  // namespace tandem::cli
