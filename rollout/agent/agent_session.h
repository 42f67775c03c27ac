// An agent at work: the shell around the loop. It asks the model, runs the calls, notifies the listener and keeps the
// record. The loop makes the decisions.
//
// Thread safety: run_agent returns once everything that it started has ended. The listener is told from several
// threads, one at a time.
#pragma once

#include <span>
#include <stop_token>

#include "envs/sandbox/sandbox.h"
#include "rollout/agent/agent_loop.h"
#include "rollout/agent/agent_model.h"

namespace tandem::rollout {

// One turn as it went. Outcomes are fewer than calls where the last were not run to their end.
struct AgentRound {
  AgentTurn turn;
  std::vector<envs::ToolOutcome> outcomes;
  double began = 0, ended = 0;  // unix seconds, of the message
};

struct AgentRecord {
  AgentEnd end = AgentEnd::kFailed;
  Status why;  // of kFailed
  std::vector<AgentRound> rounds;
  double began = 0, ended = 0;  // unix seconds
};

class AgentListener {
 public:
  virtual ~AgentListener() = default;
  virtual void turn_begins(int turn) = 0;
  virtual void text(std::string_view piece) = 0;
  virtual void trouble(const std::string& note) = 0;
  virtual void turn_taken(int turn, const AgentRound& round) = 0;
  virtual void call_ended(int turn, size_t index, const AgentTurn& of, const envs::ToolOutcome& outcome) = 0;
};

// `interrupt` ends what is under way, and then the agent.
AgentRecord run_agent(AgentModel& model, envs::Sandbox& sandbox, const AgentLimits& limits, const Clock& clock,
                      AgentListener& listener, const std::stop_token& interrupt);

}  // namespace tandem::rollout
