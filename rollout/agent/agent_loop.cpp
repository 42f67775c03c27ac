#include "rollout/agent/agent_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rollout/agent/turn_rules.h"

namespace tandem::rollout {
namespace {

bool same_calls(const std::vector<envs::ParsedCall>& a, const std::vector<envs::ParsedCall>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.call == y.call && x.error == y.error; });
}

}  // namespace

std::string_view to_string(AgentEnd end) {
  static constexpr std::array<std::string_view, 8> kNames = {"answered",    "changed",    "truncated",   "out_of_turns",
                                                             "out_of_time", "in_circles", "interrupted", "failed"};
  return kNames[static_cast<size_t>(end)];
}

std::vector<AgentAction> AgentLoop::step(const AgentEvent& event, Time now) {
  if (over_) return {};
  if (std::holds_alternative<AgentBegins>(event)) {
    if (limits_.time) ends_at_ = now + *limits_.time;
    working_ = true;
    turn_ = 1;
    return {TakeTurn{turn_, {}}};
  }
  if (std::holds_alternative<AgentInterrupted>(event)) return stop(AgentEnd::kInterrupted);
  if (std::holds_alternative<TimePassed>(event)) {
    return ends_at_ && now >= *ends_at_ ? stop(AgentEnd::kTime) : std::vector<AgentAction>();
  }
  if (!working_) return {};
  working_ = false;
  if (stopping_) return over(*stopping_);
  if (ends_at_ && now >= *ends_at_ && !std::holds_alternative<WorkFailed>(event)) {
    // An answer that came in the last moment is one.
    const auto* taken = std::get_if<TurnTaken>(&event);
    if (taken == nullptr || taken->cut || !taken->calls.empty()) return over(AgentEnd::kTime);
  }
  return work_ended(event);
}

std::vector<AgentAction> AgentLoop::work_ended(const AgentEvent& event) {
  if (const auto* taken = std::get_if<TurnTaken>(&event)) return message_came(*taken);
  if (const auto* returned = std::get_if<CallsReturned>(&event)) return calls_returned(*returned);
  return over(AgentEnd::kFailed, std::get<WorkFailed>(event).why);
}

std::vector<AgentAction> AgentLoop::message_came(const TurnTaken& taken) {
  switch (after_message(taken.cut, taken.calls.size())) {
    case AfterMessage::kTruncated:
      return over(AgentEnd::kTruncated);
    case AfterMessage::kAnswered:
      return over(AgentEnd::kAnswered);
    case AfterMessage::kRunCalls:
      break;
  }
  calls_ = taken.calls;
  for (size_t i = limits_.calls_of_turn; i < calls_.size(); ++i) {
    calls_[i].error =
        fmt::format("Error: a message may have {} calls at most. Make this one in the next.", limits_.calls_of_turn);
  }
  working_ = true;
  return {RunCalls{turn_, calls_}};
}

std::vector<AgentAction> AgentLoop::calls_returned(const CallsReturned& returned) {
  const bool circles = goes_in_circles(returned.outcomes);
  const bool changed = std::ranges::any_of(returned.outcomes, &envs::ToolOutcome::changed_files);
  const auto turns = static_cast<uint32_t>(turn_), most = static_cast<uint32_t>(limits_.turns);
  const AfterCalls next = after_calls(limits_.ends_on_change && changed, turns, most);
  if (next == AfterCalls::kOver) return over(AgentEnd::kChanged);
  if (circles) return over(AgentEnd::kCircles);
  if (next == AfterCalls::kTruncated) return over(AgentEnd::kTurns);
  working_ = true;
  ++turn_;
  return {TakeTurn{turn_, returned.outcomes}};
}

bool AgentLoop::goes_in_circles(const std::vector<envs::ToolOutcome>& outcomes) {
  Round round{std::move(calls_), {}};
  for (const auto& outcome : outcomes) round.outputs.push_back(outcome.output);
  const bool same = same_calls(round.calls, last_.calls) && round.outputs == last_.outputs;
  same_ = same ? same_ + 1 : 1;
  last_ = std::move(round);
  return same_ >= limits_.same_turns;
}

std::vector<AgentAction> AgentLoop::stop(AgentEnd end) {
  if (stopping_) return {};
  if (!working_) return over(end);
  stopping_ = end;
  return {StopWork{}};
}

std::vector<AgentAction> AgentLoop::over(AgentEnd end, Status why) {
  over_ = true;
  std::vector<AgentAction> actions;
  actions.emplace_back(AgentOver{end, std::move(why)});
  return actions;
}

std::optional<Time> AgentLoop::deadline() const {
  if (over_ || stopping_) return std::nullopt;
  return ends_at_;
}

}  // namespace tandem::rollout
