#include "rollout/agent/transcript.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>

namespace tandem::rollout {
namespace {

Json metrics_of(const AgentTurn& turn) {
  Json metrics = Json::object();
  if (turn.use.prompt) metrics["prompt_tokens"] = *turn.use.prompt;
  if (turn.use.completion) metrics["completion_tokens"] = *turn.use.completion;
  if (turn.use.cached) metrics["cached_tokens"] = *turn.use.cached;
  if (!turn.completion_ids.empty()) {
    metrics["prompt_token_ids"] = turn.prompt_ids;
    metrics["completion_token_ids"] = turn.completion_ids;
    metrics["logprobs"] = turn.logprobs;
  }
  return metrics;
}

Json calls_of(const AgentTurn& turn) {
  Json calls = Json::array();
  for (size_t i = 0; i < turn.calls.size(); ++i) {
    const auto& arguments = turn.calls[i].call.arguments;
    calls.push_back({{"tool_call_id", turn.call_ids[i]},
                     {"function_name", turn.calls[i].call.name},
                     {"arguments", arguments.is_object() ? arguments : Json::object()}});
  }
  return calls;
}

Json results_of(const AgentRound& round) {
  Json results = Json::array();
  for (size_t i = 0; i < round.outcomes.size(); ++i)
    results.push_back({{"source_call_id", round.turn.call_ids[i]}, {"content", round.outcomes[i].output}});
  return {{"results", std::move(results)}};
}

}  // namespace

std::string iso_time(double unix_seconds) {
  const double whole = std::floor(unix_seconds);
  const auto milliseconds = static_cast<int>((unix_seconds - whole) * 1000);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm time{};
  ::gmtime_r(&seconds, &time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03d}Z", time, milliseconds);
}

Json atif_of(const TranscriptHead& head, const AgentRecord& record, std::span<const envs::Message> opening,
             const Json& tools) {
  Json steps = Json::array();
  const auto add_step = [&](double when, std::string_view source, const std::string& message) -> Json& {
    steps.push_back(
        {{"step_id", steps.size() + 1}, {"timestamp", iso_time(when)}, {"source", source}, {"message", message}});
    return steps.back();
  };
  for (const auto& message : opening)
    add_step(record.began, message.role == "system" ? "system" : "user", message.content);
  uint64_t prompt = 0, completion = 0, cached = 0;
  for (const auto& round : record.rounds) {
    const auto& turn = round.turn;
    Json& step = add_step(round.ended, "agent", turn.text);
    if (!turn.reasoning.empty()) step["reasoning_content"] = turn.reasoning;
    step["model_name"] = turn.model;
    if (!turn.calls.empty()) step["tool_calls"] = calls_of(turn);
    if (!round.outcomes.empty()) step["observation"] = results_of(round);
    if (auto metrics = metrics_of(turn); !metrics.empty()) step["metrics"] = std::move(metrics);
    if (!turn.summary.empty()) step["extra"]["summary"] = turn.summary;
    if (!turn.cut_by.empty()) step["extra"]["cut_by"] = turn.cut_by;
    prompt += turn.use.prompt.value_or(0);
    completion += turn.use.completion.value_or(0);
    cached += turn.use.cached.value_or(0);
  }
  Json extra = head.extra;
  extra["end"] = to_string(record.end);
  if (!record.why.ok()) extra["error"] = record.why.message();
  Json trajectory = {
      {"schema_version", "ATIF-v1.7"},
      {"session_id", head.session_id},
      {"trajectory_id", head.session_id},
      {"agent",
       {{"name", "tandem"}, {"version", head.agent_version}, {"model_name", head.model}, {"tool_definitions", tools}}}};
  trajectory["final_metrics"] = {{"total_prompt_tokens", prompt},
                                 {"total_completion_tokens", completion},
                                 {"total_cached_tokens", cached},
                                 {"total_steps", steps.size()}};
  trajectory["steps"] = std::move(steps);
  trajectory["extra"] = std::move(extra);
  return trajectory;
}

}  // namespace tandem::rollout
