// The warm start: supervised steps on demonstrations of training tasks, drawn as they are needed.
#pragma once

#include <functional>

#include "envs/episodes/demonstration.h"
#include "rollout/agent/conversation.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

struct WarmStartSettings {
  std::vector<std::string> kinds;
  uint64_t seed = 0;
  int transcripts_per_step = 16;
  envs::Noise noise;
};

// The transcript as the model would have lived it; what it said is trained. kExhausted where it is longer than
// `max_tokens`.
Result<Sample> sample_of(const envs::Transcript& transcript, const rollout::Conversation& conversation, int max_tokens);

// Demonstrations number `first` .. `first + count` of the seed: kinds in turn, each a task of its own. Demonstrations
// longer than `max_tokens` are replaced by later ones; kInvalid where hardly any is short enough.
Result<std::vector<Sample>> demonstrations(const WarmStartSettings& settings, const rollout::Conversation& conversation,
                                           uint64_t first, int count, int max_tokens);

}  // namespace tandem::trainer
