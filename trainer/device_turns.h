// Steps of a trainer that shares its device with engines: they sleep meanwhile, and have its memory afterwards.
#pragma once

#include <optional>

#include "base/turns.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

// Nothing where `file` is empty: engines do not sleep.
inline Result<std::optional<Turns>> turns_at(const fs::path& file) {
  if (file.empty()) return std::optional<Turns>();
  return std::optional(TRY(Turns::open(file)));
}

// The step, in the trainer's turn, after which the learner has nothing of the device.
template <typename... Arguments>
Result<StepMetrics> reinforce_in_turn(std::optional<Turns>& turns, Learner& learner, const Arguments&... arguments) {
  if (!turns) return learner.reinforce(arguments...);
  TRY(turns->take());
  auto metrics = learner.reinforce(arguments...);
  learner.give_back_device();
  turns->give_back();
  return metrics;
}

}  // namespace tandem::trainer
