// A rank of the trainer other than the first: it trains its share of each step as the first rank orders
// (trainer/team.h), and otherwise talks to the coordinator only.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "trainer/trainer.h"

namespace tandem::trainer {

// Runs until the coordinator says stop, or `stop` is set. Where another rank is lost it begins again with those that
// come: from the model, and the checkpoint that the first rank names.
Status run_follower(const TrainerSettings& settings, const Clock& clock, const std::atomic<bool>& stop);

}  // namespace tandem::trainer
