// The record of an agent in the Agent Trajectory Interchange Format (ATIF, version 1.7).
//
// Pure: a function of its arguments. Token ids and log-probabilities are written where our own engine sampled.
#pragma once

#include "rollout/agent/agent_session.h"

namespace tandem::rollout {

struct TranscriptHead {
  std::string session_id;
  std::string agent_version;
  std::string model;
  Json extra = Json::object();  // what else a reader may want to know of the session
};

Json atif_of(const TranscriptHead& head, const AgentRecord& record, std::span<const envs::Message> opening,
             const Json& tools);

// "2026-01-31T12:00:00.250Z"
std::string iso_time(double unix_seconds);

}  // namespace tandem::rollout
