// Demonstrations as an auxiliary loss of reinforcement learning: some samples of a file join every batch, and their
// negative log-likelihood is a term of the loss. It prevents forgetting (RLHF's pretraining term, Ouyang et al. 2022),
// and gives a signal where no episode succeeds.
//
// The file is tokens, so that the trainer needs neither tokenizer nor chat template: JSON Lines, a head with "format",
// "samples" (how many) and "digest" of all behind it, and a line a sample with "tokens" and "trained", the runs
// [begin, end) that are learned from.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

inline constexpr const char* kDemonstrationsFile = "demonstrations.jsonl";  // in the directory of a run

// Writes the file atomically.
Status write_demonstrations(const fs::path& path, std::span<const Sample> samples);

class Demonstrations {
 public:
  // Tokens must be below `vocabulary`, samples no longer than `max_tokens`. kCorrupt names the first line that breaks
  // this.
  static Result<Demonstrations> read(const fs::path& path, int vocabulary, int max_tokens);

  size_t size() const { return samples_.size(); }
  // The samples of a step (from 1) for Learner::reinforce(): passes over the file, each shuffled anew. A function of
  // file, seed, count and step.
  std::vector<Sample> of_step(uint64_t step, size_t count, uint64_t seed) const;

 private:
  explicit Demonstrations(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  std::vector<Sample> samples_;
};

}  // namespace tandem::trainer
