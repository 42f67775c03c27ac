// What an agent did, counted: edits, what it read before them, how often it called several tools at once. Pure.
#pragma once

#include "eval/sample.h"
#include "rollout/agent/agent_session.h"

namespace tandem::eval {

Behaviour behaviour_of(const rollout::AgentRecord& record);

}  // namespace tandem::eval
