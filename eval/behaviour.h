// Statistics of an agent's behaviour: edits, reads before them, parallel calls. Pure.
#pragma once

#include "eval/sample.h"
#include "rollout/agent/agent_session.h"

namespace tandem::eval {

Behaviour behaviour_of(const rollout::AgentRecord& record);

}  // namespace tandem::eval
