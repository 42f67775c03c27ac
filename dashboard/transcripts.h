// The same held-out tasks before and after training, side by side, in the model's own words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dashboard/run_files.h"

namespace tandem::dashboard {

// Consecutive tokens as text: what the model sampled, or what it was given.
struct Passage {
  std::string text;
  bool sampled = false;
};

struct Transcript {
  uint64_t episode = 0;
  std::optional<double> reward;
  std::string outcome;
  std::vector<Passage> passages;  // empty where the tokens are not there
};

struct TranscriptPair {
  std::string task, kind;
  bool greedy = false;
  std::optional<Transcript> before, after;
};

// Up to `per_kind` tasks of every kind, those first that went from 0 to 1, then from 1 to 0, then the rest; the greedy
// episode of a task, or its first sample. Before the measurement after training, what there is of before. Fails where
// RUN/model has no tokenizer, or the trajectories cannot be read.
Result<std::vector<TranscriptPair>> choose_transcripts(const RunFiles& run, int per_kind);

}  // namespace tandem::dashboard
