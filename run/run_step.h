// A step of a run as a model: "RUN@12", "RUN@last", "RUN@best", wherever a model directory can be named.
//
// RUN is a run directory; the words after the last @ are those of its checkpoints: a step, the newest one, or the one
// that checkpoints/best names. A run that is on may lose a checkpoint at any time, so a new run copies the model.
//
// Thread safety: none needed. Several processes may write the model of one step at once: each makes it whole.
#pragma once

#include <optional>
#include <string_view>

#include "base/file.h"

namespace tandem::run {

struct RunStep {
  fs::path run, checkpoint;
  uint64_t step = 0;
};

// Nothing where `text` does not begin with a run directory and an @. kInvalid where it does and there is no such
// checkpoint, with those that there are; where `text` is a run directory itself, with what it could mean.
Result<std::optional<RunStep>> run_step_named(std::string_view text);

// A directory with the config, tokenizer and layout of weights of the model that `text` names, to check it by: of a
// step those of the run's model, else `text`. The errors are those of run_step_named().
Result<fs::path> model_to_check(std::string_view text);

// Writes the step's model as a Hugging Face directory, with tokenizer, template and profile of its run; `out` is whole
// or not there. kCorrupt where the checkpoint is damaged.
Status write_model(const RunStep& step, const fs::path& out);

// The directory of the model that a command is given: of a step it is CHECKPOINT/model, written where it is missing.
// kInvalid as above; kUnfit where this user cannot write there, with the command that makes one elsewhere.
Result<fs::path> model_directory(std::string_view text);

}  // namespace tandem::run
