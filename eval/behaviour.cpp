#include "eval/behaviour.h"

namespace tandem::eval {
namespace {

bool is_search(std::string_view tool) {
  return tool == "grep" || tool == "glob_file_search" || tool == envs::kSearchTool;
}

}  // namespace

Behaviour behaviour_of(const rollout::AgentRecord& record) {
  Behaviour out;
  for (const auto& round : record.rounds) {
    if (round.turn.calls.size() > 1) ++out.parallel_turns;
    double ran = 0;
    for (size_t i = 0; i < round.outcomes.size() && i < round.turn.calls.size(); ++i) {
      const auto& call = round.turn.calls[i];
      const auto& outcome = round.outcomes[i];
      ran += outcome.seconds;
      if (!call.error.empty() || !outcome.ok) ++out.refused_calls;
      if (!call.error.empty()) continue;
      if (is_search(call.call.name)) ++out.searches;
      const auto* tool = envs::find_tool(call.call.name);
      const bool reads = tool != nullptr && envs::effect_of(*tool, call.call.arguments) == envs::ToolEffect::kReads;
      if (outcome.changed_files && out.edits++ == 0) out.seconds_to_edit = round.ended - record.began + ran;
      if (reads && out.edits == 0) ++out.reads_before_edit;
    }
  }
  return out;
}

}  // namespace tandem::eval
