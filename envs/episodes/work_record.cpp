#include "envs/episodes/work_record.h"

#include <algorithm>

namespace tandem::envs {
namespace {

bool is_search(std::string_view tool) { return tool == "grep" || tool == "glob_file_search" || tool == kSearchTool; }

}  // namespace

void WorkRecord::turn(std::span<const ParsedCall> calls, std::span<const ToolOutcome> outcomes, double seconds) {
  ++behaviour_.turns;
  if (calls.size() > 1) ++behaviour_.parallel_turns;
  const size_t answered = std::min(calls.size(), outcomes.size());
  size_t begin = 0, end = 0;  // of the calls that run at once
  double ran = 0;
  for (size_t i = 0; i < answered; ++i) {
    if (i == end) {
      begin = i;
      end = end_of_parallel(calls, begin);
    }
    const auto& call = calls[i];
    const auto& outcome = outcomes[i];
    ++behaviour_.calls;
    ran += outcome.seconds;
    if (end - begin > 1) ++behaviour_.parallel_calls;
    if (!call.error.empty() || !outcome.ok) ++behaviour_.refused_calls;
    if (!call.error.empty()) continue;
    if (outcome.changed_files && behaviour_.edits++ == 0) behaviour_.seconds_to_edit = std::max(seconds + ran, 0.0);
    if (outcome.changed_files) edit(outcome.changes);
    if (is_search(call.call.name)) ++behaviour_.searches;
    if (behaviour_.edits > 0) continue;
    if (is_search(call.call.name)) ++behaviour_.searches_before_edit;
    if (only_reads(call.call)) ++behaviour_.reads_before_edit;
  }
}

void WorkRecord::edit(std::span<const FileChange> changes) {
  for (const FileChange& change : changes) {
    auto& earlier = changes_[change.file];
    // The file is as it was before one of them: that one and all since are undone.
    const auto as_before = std::find_if(earlier.begin(), earlier.end(),
                                        [&](const Change& e) { return !e.undone && e.change.before == change.after; });
    if (as_before != earlier.end()) {
      std::for_each(as_before, earlier.end(), [&](Change& e) { undo(e); });
      continue;
    }
    const auto same = std::find_if(earlier.rbegin(), earlier.rend(),
                                   [&](const Change& e) { return !e.undone && takes_back(change, e.change); });
    if (same != earlier.rend()) undo(*same);
  }
  standing_.push_back(changes.size());
  for (const FileChange& change : changes) changes_[change.file].push_back({change, standing_.size() - 1});
}

void WorkRecord::undo(Change& change) {
  if (std::exchange(change.undone, true)) return;
  if (--standing_[change.edit] == 0) ++behaviour_.edits_undone;
}

Behaviour WorkRecord::behaviour(double seconds) const {
  Behaviour behaviour = behaviour_;
  behaviour.seconds = std::max(seconds, 0.0);  // clocks of the wall may go back
  return behaviour;
}

}  // namespace tandem::envs
