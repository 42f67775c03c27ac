// Records an attempt for custom rewards, and grades it with their terms.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "envs/episodes/attempt.h"
#include "envs/episodes/episode.h"
#include "envs/rewards/rewards.h"

namespace tandem::envs {

class SessionRecord {
 public:
  void begin(const Attempt& attempt, const Opening& opening);
  struct Said {
    std::string_view text, reasoning;
    std::span<const ParsedCall> calls;
  };
  void turn(const Said& said, std::span<const ToolOutcome> outcomes);
  void answer(const Said& said, const std::optional<std::string>& instruction);

  struct Ending {
    std::string_view answer;
    bool truncated = false;
  };
  // The attempt's grade; where there are `rewards`, with their terms. Ends the record.
  Result<Grade> score(Attempt& attempt, const Ending& ending, Rewards* rewards, SandboxBackend& backend,
                      const EpisodeOptions& options);

 private:
  PlayedEpisode played_;
};

}  // namespace tandem::envs
