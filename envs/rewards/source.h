// A source of reward terms for a finished episode: a program, a server or a judge.
//
// Thread safety: ask() is called from several threads.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "envs/rewards/played_episode.h"
#include "envs/rewards/reward_answer.h"
#include "envs/rewards/settings.h"
#include "envs/tasks/runner.h"

namespace tandem::envs {

// A sandbox for a reward program: how it is made, and the files that the episode left behind. Only reward.command in a
// sandbox looks at it.
struct RewardPlace {
  Runner runner;
  Place place;
};

class RewardSource {
 public:
  virtual ~RewardSource() = default;
  virtual std::string name() const = 0;  // the config's key, "reward.command"
  // The key, beside the episode, under which answers are cached.
  virtual std::string identity() const = 0;

  // Whether it has something to say about the episode.
  virtual bool asks_about(const PlayedEpisode&) const { return true; }

  struct Question {
    const PlayedEpisode& episode;
    const std::string& text;  // the same as JSON
    const RewardPlace& where;
    double seconds = 20;  // for the answer
  };
  // Fails with what went wrong, in words: kDeadline, kUnavailable (it may go well the next time), kCorrupt for what is
  // no answer, kInvalid where asking again is of no use.
  virtual Result<RewardAnswer> ask(const Question& question) = 0;
};

// reward.command, in the sandbox or beside the server. `folder` has the program's files, and is absolute.
Result<std::unique_ptr<RewardSource>> command_source(const RewardSettings& settings, const fs::path& folder);
// reward.http. Fails as wire::read_server_key does.
Result<std::unique_ptr<RewardSource>> http_source(const RewardSettings& settings);

}  // namespace tandem::envs
