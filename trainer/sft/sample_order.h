// Which samples each step learns from: an epoch is all samples in an order of its own, cut into steps.
//
// A function of the lengths, the seed and the number of tokens alone, so a training that goes on after an interrupt
// needs no more than the number of its step.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::trainer {

class SampleOrder {
 public:
  // `lengths` in tokens, at least one sample. A step takes samples as long as they have no more than `tokens_per_step`
  // together, and one at least; it never goes beyond the end of an epoch.
  SampleOrder(std::vector<int> lengths, int tokens_per_step, uint64_t seed);

  int64_t steps_of(int epochs);
  // Indices of the samples of a step, which counts from 1, and its epoch, from 0. Good until the next call.
  struct Step {
    std::span<const uint32_t> samples;
    int epoch = 0;
  };
  Step step(int64_t number);

 private:
  void compute(int epoch);
  std::vector<int> lengths_;
  int tokens_per_step_;
  uint64_t seed_;
  std::vector<int64_t> first_steps_ = {1};  // by epoch, of those whose beginning is known
  int epoch_ = -1;                          // the one below
  std::vector<uint32_t> order_;
  std::vector<size_t> begins_;  // of steps in `order_`, and its end
};

}  // namespace tandem::trainer
