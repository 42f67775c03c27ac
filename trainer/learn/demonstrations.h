// Demonstrations beside reinforcement: some samples of a file join every batch, and their negative log-likelihood is a
// term of the loss, as in reinforcement that must not forget (RLHF's pretraining term, Ouyang et al. 2022) or that
// learns from examples where it has no success of its own.
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

// Whole or not at all.
Status write_demonstrations(const fs::path& path, std::span<const Sample> samples);

class Demonstrations {
 public:
  // Tokens must be below `vocabulary`, samples no longer than `max_tokens`. kCorrupt names the line that is not so.
  static Result<Demonstrations> read(const fs::path& path, int vocabulary, int max_tokens);

  size_t size() const { return samples_.size(); }
  // The samples of a step, which counts from 1: the file again and again, each time in an order of its own. A function
  // of the file, the seed, the count and the step. As Learner::reinforce() takes them.
  std::vector<Sample> of_step(uint64_t step, size_t count, uint64_t seed) const;

 private:
  explicit Demonstrations(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  std::vector<Sample> samples_;
};

}  // namespace tandem::trainer
