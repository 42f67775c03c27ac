// One sample from its beginning to its verdict: an episode, an agent in it, a grade.
//
// The agent's loop, the tools and the grading are those of training and of `tandem agent`; sampling is the source's.
#pragma once

#include <stop_token>

#include "base/clock.h"
#include "envs/episodes/episode.h"
#include "eval/model_source.h"
#include "eval/sample.h"
#include "rollout/agent/agent_session.h"

namespace tandem::eval {

struct PlayTerms {
  envs::EpisodeOptions episode;
  int turns = 0;        // messages of the model; 0: those of the task
  Duration time{};      // of the agent
  uint64_t tokens = 0;  // of all turns; 0: any number
  uint64_t seed = 1;    // of the suite
};

struct Played {
  SampleResult result;
  Json transcript;  // null where the agent never began
};

// Everything that goes wrong is an outcome. `stop` ends it soon, as cancelled. Blocks for as long as the sample takes;
// may be called from several threads.
Played play(const envs::Task& task, int sample, ModelSource& source, envs::SandboxBackend& backend,
            const PlayTerms& terms, const Clock& clock, const std::stop_token& stop);

// The seed of sample `sample` of a task: a function of these three alone. Below 2^31, which every server takes.
uint64_t seed_of_sample(uint64_t suite_seed, std::string_view task, int sample);

// The verdict on the model from an agent's end. `why` is that of AgentEnd::kFailed.
rollout::Outcome outcome_of(rollout::AgentEnd end, const Status& why);

}  // namespace tandem::eval
