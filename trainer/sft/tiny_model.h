// A small model made on the spot: tokenizer, random weights and a short warm start, without any download.
//
// It is for the job that shows the whole loop in under a minute: two layers that know the call format, look where they
// should most of the time, and decide badly, so that reinforcement has something to mend. It can do one kind of task
// (`echo`) and nothing else, in the notation of tool calls that is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"
#include "model/parameters.h"
#include "trainer/sft/tiny_template.h"

namespace tandem::trainer {

struct TinyModelSettings {
  uint64_t seed = 1;
  int warm_steps = 240;  // supervised steps; 0: random weights
  int threads = 1;
  std::string chat_template = std::string(kPlainTemplate);  // the name of a TinyTemplate
};

// Writes a Hugging Face directory at `out`, whole or not at all; one that is there is replaced. A function of the
// settings
// (`threads` changes no bit). `progress` gets a line now and then.
Status make_tiny_model(const fs::path& out, const TinyModelSettings& settings,
                       const std::function<void(const std::string&)>& progress);

// The layout of its layers, which do not depend on the vocabulary: what can be checked before it is made.
Result<model::ParameterLayout> tiny_layout();

}  // namespace tandem::trainer
