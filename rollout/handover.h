// The state that another rollout needs to continue an episode, and its encoding as a message.
#pragma once

#include <optional>
#include <string>

#include "rollout/agent/conversation.h"
#include "rollout/books/trajectory.h"

namespace tandem::rollout {

struct Handover {
  LeaseTerms lease;
  Trajectory trajectory;
  std::optional<uint64_t> sandbox;  // a lease of the environment server; none before the episode has begun there
  int server = 0;                   // whose lease that is, by rank
  envs::Opening opening;            // as the environment gave it
  std::string instruction;          // of the step that it is at, where it is not the first of its task
  Said said;                        // in the turn whose calls are running
  bool is_sampling = false;         // a turn is not at its end: the trajectory ends with what it has said so far
  bool is_summarising = false;      // that turn is a summary
  uint32_t turns = 0, max_turns = 0, tool_calls = 0, retokenised_turns = 0, prompt_tokens = 0;
  uint32_t steals = 0;         // with this one
  bool is_past_trunk = false;  // that of its lease is over for it
  uint32_t inherited_tokens = 0, inherited_calls = 0;
};

void write_handover(const Handover& handover, wire::Outgoing& message);
// kCorrupt where the trajectory, the tools or the calls cannot be read.
Result<Handover> read_handover(const wire::Incoming& message);

}  // namespace tandem::rollout
