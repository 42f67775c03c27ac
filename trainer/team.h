// Orders of the first rank of a trainer to the others: it announces each piece of work, and then all ranks make the
// same call of their learners (trainer/learn/learner.h).
//
// Thread safety: none. Errors: those of collectives/group.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

struct TeamSettings {
  fs::path folder;  // of the ranks' sockets, on this machine; it is there
  int rank = 0, ranks = 1;
};

// Finds the other ranks, for as long as it takes; those that were there and went are found again when they come back.
// kCancelled where `stop` was set meanwhile, kInvalid where the settings cannot be. The caller is the only process of
// its rank.
Result<Ranks> meet(const TeamSettings& settings, const std::function<bool()>& stop);

struct Order {
  enum class Kind : uint32_t {
    kRest,   // nothing; said often while there is no work, so that nobody waits long for the next
    kTrain,  // the step after `version`, from samples
    kSkip,   // the step after `version`, whose batch has nothing to learn from
    kSave,   // a checkpoint of `version`
    kLoad,   // the checkpoint of `version`
  };
  Kind kind = Kind::kRest;
  uint64_t version = 0;  // of the run
  std::vector<Sample> samples = {};
};

// Called on all ranks: `say` on the first, the other on the rest.
Status say(Ranks& ranks, const Order& order);
Result<Order> hear(Ranks& ranks);

// On the first rank: loads the newest whole checkpoint of the run on all ranks; nothing where there is none.
Status go_on_from_checkpoint(const fs::path& run_dir, Ranks& ranks, Learner& learner);

// Samples as bytes of this machine, for ranks of the same binary. kCorrupt where bytes are none.
std::vector<std::byte> pack(std::span<const Sample> samples);
Result<std::vector<Sample>> unpack(std::span<const std::byte> bytes);

}  // namespace tandem::trainer
