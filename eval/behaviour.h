// An agent's behaviour in a sample, counted as in training (envs/episodes/work_record.h). Pure.
#pragma once

#include <string>

#include "base/behaviour.h"
#include "rollout/agent/agent_session.h"

namespace tandem::eval {

Behaviour behaviour_of(const rollout::AgentRecord& record);

// The means of samples, as a line of a report.
std::string behaviour_text(const BehaviourSums& sums);

}  // namespace tandem::eval
