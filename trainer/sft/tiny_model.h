// A small model made on the spot: tokenizer, random weights and a short warm start, without any download.
//
// It is for the job that shows the whole loop in under a minute: two layers that know the call format, look where they
// should most of the time, and decide badly, so that reinforcement has something to mend. It can do one kind of task
// (`echo`) and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"

namespace tandem::trainer {

struct TinyModelSettings {
  uint64_t seed = 1;
  int warm_steps = 240;  // supervised steps; 0: random weights
  int threads = 1;
};

// Writes a Hugging Face directory at `out`, whole or not at all; one that is there is replaced. A function of the
// settings
// (`threads` changes no bit). `progress` gets a line now and then.
Status make_tiny_model(const fs::path& out, const TinyModelSettings& settings,
                       const std::function<void(const std::string&)>& progress);

}  // namespace tandem::trainer
