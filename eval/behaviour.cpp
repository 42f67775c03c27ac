#include "eval/behaviour.h"

#include <fmt/format.h>

#include "envs/episodes/work_record.h"

namespace tandem::eval {

Behaviour behaviour_of(const rollout::AgentRecord& record) {
  envs::WorkRecord work;
  for (const auto& round : record.rounds) work.turn(round.turn.calls, round.outcomes, round.ended - record.began);
  return work.behaviour(record.ended - record.began);
}

std::string behaviour_text(const BehaviourSums& sums) {
  return fmt::format(
      "{:.1f} edits, of which {:.1f} were undone later, {:.1f} reads before the first one, {:.1f} searches, "
      "{:.1f} messages with several calls, {:.1f} calls that ran in parallel, a sample",
      sums.mean("edits"), sums.mean("edits_undone"), sums.mean("reads_before_edit"), sums.mean("searches"),
      sums.mean("parallel_turns"), sums.mean("parallel_calls"));
}

}  // namespace tandem::eval
