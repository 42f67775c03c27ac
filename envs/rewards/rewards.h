// The terms of a run's own reward programs, servers and judges, for episodes that are over.
//
// Asks each of them, again where that may help, within a deadline; keeps answers to equal questions. Not getting an
// answer is an error and never a number: such an episode has no reward.
//
// Thread safety: score() and counters() may be called from several threads. score() blocks at most for twice the tries
// of all sources.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "envs/rewards/source.h"
#include "envs/sandbox/read_cache.h"

namespace tandem::envs {

struct RewardCounters {
  uint64_t asked = 0;     // questions to a program, server or judge, each try
  uint64_t answered = 0;  // of these
  uint64_t cached = 0;    // answers from the cache
  uint64_t failed = 0;    // episodes that got no reward
  double seconds = 0;     // of all questions together
};

class Rewards {
 public:
  // `wanted`: the terms that have a weight, which the answers about a training episode must have together. `settings`
  // are free of mistakes.
  Rewards(const RewardSettings& settings, std::set<std::string> wanted,
          std::vector<std::unique_ptr<RewardSource>> sources, const Clock& clock);

  // All terms together. An error names the source: kDeadline, kUnavailable, kCorrupt, kInvalid; also where two have a
  // term of one name, or the grade has it already, or one with a weight is missing.
  Result<RewardAnswer> score(const PlayedEpisode& episode, const RewardPlace& where);

  // The part of the episode for a judge that compares a group; empty without such a judge.
  std::string shown(const PlayedEpisode& episode) const;

  RewardCounters counters() const;

 private:
  class Permit;
  Result<RewardAnswer> ask(RewardSource& source, const RewardSource::Question& question);
  Result<RewardAnswer> ask_again(RewardSource& source, const RewardSource::Question& question);
  Result<RewardAnswer> joined(const PlayedEpisode& episode, const RewardPlace& where);

  const RewardSettings settings_;
  const std::set<std::string> wanted_;
  const std::vector<std::unique_ptr<RewardSource>> sources_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  int asking_ = 0;
  RewardCounters counters_;
  std::list<ContentDigest> newest_;  // of the cache, the last used first
  std::map<ContentDigest, std::pair<RewardAnswer, std::list<ContentDigest>::iterator>> cache_;
};

// The sources of a config; null where it has none. `folder` has what reward.files name. Fails as they do.
Result<std::shared_ptr<Rewards>> rewards_of(const RewardSettings& settings, std::set<std::string> wanted,
                                            const fs::path& folder, const Clock& clock);

}  // namespace tandem::envs
