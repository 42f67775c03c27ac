#include "eval/player.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/random.h"
#include "envs/episodes/base_copies.h"
#include "eval/behaviour.h"
#include "eval/cheats.h"
#include "eval/episode_sandbox.h"
#include "eval/metered_backend.h"
#include "eval/tasks.h"
#include "rollout/agent/transcript.h"

namespace tandem::eval {
namespace {

using rollout::AgentEnd;
using rollout::Outcome;

// The model of a conversation in which no turn begins once the tokens of a sample are used up.
class BoundedModel final : public rollout::AgentModel {
 public:
  BoundedModel(rollout::AgentModel& model, uint64_t most) : model_(model), most_(most) {}
  std::string name() const override { return model_.name(); }
  const std::vector<envs::Message>& opening() const override { return model_.opening(); }
  const Json& tools() const override { return model_.tools(); }
  Result<rollout::AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const rollout::TurnListener& listener,
                                  const std::stop_token& stop) override {
    if (most_ > 0 && used_ >= most_) {
      rollout::AgentTurn none;
      none.cut_by = "limits.tokens of the suite";
      none.model = model_.name();
      return none;
    }
    auto turn = model_.turn(replies, listener, stop);
    if (turn) used_ += turn->use.prompt.value_or(0) + turn->use.completion.value_or(0);
    return turn;
  }

 private:
  rollout::AgentModel& model_;
  const uint64_t most_;
  uint64_t used_ = 0;
};

// Tools of the servers that the task brings: in an episode's list they follow those of the suite.
std::vector<envs::ForeignTool> foreign_tools_in(const envs::Episode& episode, const PlayTerms& terms) {
  const Json all = episode.opening(envs::ToolListing::kByTemplate).tools;
  std::vector<envs::ForeignTool> foreign;
  for (size_t i = terms.episode.tools.size(); i < all.size(); ++i) {
    const Json& function = all[i].at("function");
    const auto name = function.at("name").get<std::string>();
    foreign.push_back({.name = name,
                       .tool = name.substr(name.find("__") + 2),
                       .description = function.at("description").get<std::string>(),
                       .parameters = function.at("parameters")});
  }
  return foreign;
}

class Unheard final : public rollout::AgentListener {
 public:
  void turn_begins(int) override {}
  void text(std::string_view) override {}
  void trouble(const std::string&) override {}
  void turn_taken(int, const rollout::AgentRound&) override {}
  void call_ended(int, size_t, const rollout::AgentTurn&, const envs::ToolOutcome&) override {}
};

void failed(SampleResult& result, const Status& why) {
  result.outcome = why.code() == Code::kCancelled ? Outcome::kCancelled : Outcome::kInfraError;
  result.why = why.message();
}

void count(const rollout::AgentRecord& record, SampleResult& result) {
  result.end = rollout::to_string(record.end);
  result.turns = static_cast<int>(record.rounds.size());
  for (const auto& round : record.rounds) {
    result.tool_calls += static_cast<int>(round.outcomes.size());
    result.prompt_tokens += round.turn.use.prompt.value_or(0);
    result.completion_tokens += round.turn.use.completion.value_or(0);
  }
}

// Servers add a date to a name ("m-2026-01-01"), or leave out whose it is ("a/m"): the same model.
bool is_version_of(std::string_view answered, std::string_view asked) {
  const auto bare = [](std::string_view name) { return name.substr(name.rfind('/') + 1); };
  const auto one = bare(answered), other = bare(asked);
  return one.starts_with(other) || other.starts_with(one);
}

std::string other_model_of(const rollout::AgentRecord& record, const std::string& asked) {
  for (const auto& round : record.rounds) {
    if (!round.turn.model.empty() && !is_version_of(round.turn.model, asked)) return round.turn.model;
  }
  return "";
}

std::string answer_of(const rollout::AgentRecord& record) {
  return record.end == AgentEnd::kAnswered && !record.rounds.empty() ? record.rounds.back().turn.text : "";
}

std::string why_without_verdict(const rollout::AgentRecord& record, const PlayTerms& terms) {
  if (record.end == AgentEnd::kTime) return fmt::format("it took longer than {:g} s", to_seconds(terms.time));
  return record.why.ok() ? std::string(rollout::to_string(record.end)) : record.why.message();
}

// What is looked at here takes nothing of the sample's time, and of its use of processors. Nothing where a sandbox
// failed.
std::optional<WorkSize> diff_of(const envs::Episode& episode, envs::SandboxBackend& backend,
                                const envs::EpisodeOptions& options) {
  const auto* left = episode.left_behind();
  if (left == nullptr) return std::nullopt;
  envs::BaseCopies on(backend);
  const auto begun = envs::begun_with(episode.task(), on, options);
  return begun ? work_size(episode.task(), *begun, *left, on) : std::nullopt;
}

// Why a verdict is no pass, by how the agent ended where the grade has nothing to say.
std::string why_no_pass(const envs::Grade& grade, const rollout::AgentRecord& record) {
  if (grade.reward >= 1) return "";
  const auto end = fmt::format("the agent ended {}", rollout::to_string(record.end));
  return grade.why.empty() ? end : grade.why;
}

}  // namespace

uint64_t seed_of_sample(uint64_t suite_seed, std::string_view task, int sample) {
  return derive_seed(derive_seed(suite_seed, task), {static_cast<uint64_t>(sample)}) & 0x7fff'ffff;
}

Outcome outcome_of(AgentEnd end, const Status& why) {
  switch (end) {
    case AgentEnd::kAnswered:
    case AgentEnd::kChanged:
      return Outcome::kCompleted;
    case AgentEnd::kTruncated:
    case AgentEnd::kTurns:
    case AgentEnd::kCircles:
      return Outcome::kTruncated;
    case AgentEnd::kTime:
      return Outcome::kTimeout;
    case AgentEnd::kInterrupted:
      return Outcome::kCancelled;
    case AgentEnd::kFailed:
      break;
  }
  // Servers refuse a conversation that is too long for the model: its end, as running out of tokens is.
  constexpr std::array<std::string_view, 4> kTooLong = {"context length", "context_length", "maximum context",
                                                        "context window"};
  std::string words = why.message();
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_long =
      std::any_of(kTooLong.begin(), kTooLong.end(), [&](auto mark) { return words.find(mark) != std::string::npos; });
  if (is_long) return Outcome::kTruncated;
  return why.code() == Code::kCancelled ? Outcome::kCancelled : Outcome::kInfraError;
}

Played play(const envs::Task& task, int sample, ModelSource& source, envs::SandboxBackend& backend,
            const PlayTerms& terms, const Clock& clock, const std::stop_token& stop) {
  Played played;
  SampleResult& result = played.result;
  result.task = name_of_task(task);
  result.sample = sample;
  result.began = clock.unix_seconds();
  const Time began = clock.now();
  MeteredBackend metered(backend);
  result.use = ComputeUse::none();
  const auto ends = [&] {
    result.seconds = to_seconds(clock.now() - began);
    result.use.sandbox_cores = metered.core_seconds();
  };
  const auto done = [&] {
    ends();
    return std::move(played);
  };

  auto options = terms.episode;
  options.keep_left_behind = true;
  auto episode = envs::Episode::open(task, metered, options);
  if (!episode) return failed(result, episode.error()), done();
  auto model = source.begin(task, seed_of_sample(terms.seed, result.task, sample), foreign_tools_in(**episode, terms));
  if (!model) return failed(result, model.error()), done();
  BoundedModel bounded(**model, terms.tokens);
  EpisodeSandbox sandbox(**episode);
  Unheard unheard;
  rollout::AgentLimits limits{.turns = terms.turns > 0 ? terms.turns : task.max_turns,
                              .same_turns = std::numeric_limits<int>::max(),  // training ends no circles
                              .ends_on_change = task.ends_on_change,
                              .time = terms.time};
  const auto record = rollout::run_agent(bounded, sandbox, limits, clock, unheard, stop);
  const auto use = source.use_of(**model);
  result.use.model_cores = use ? std::optional(use->core_seconds) : std::nullopt;
  result.use.model_gpus = use ? std::optional(use->gpu_seconds) : std::nullopt;
  count(record, result);
  result.answered_as = other_model_of(record, bounded.name());
  result.outcome = outcome_of(record.end, record.why);
  if (result.has_verdict()) {
    const auto grade = (*episode)->score(answer_of(record));
    if (grade) {
      result.reward = grade->reward;
      result.why = why_no_pass(*grade, record);
    } else {
      failed(result, grade.error());
    }
  } else {
    result.why = why_without_verdict(record, terms);
  }
  ends();
  if (result.has_verdict()) result.diff = diff_of(**episode, backend, options);
  result.behaviour = behaviour_of(record);
  result.flags = cheats_in(task, record);
  played.transcript = rollout::atif_of({.session_id = fmt::format("{}/{}", result.task, sample),
                                        .agent_version = TANDEM_VERSION,
                                        .model = bounded.name(),
                                        .extra = {{"task", result.task},
                                                  {"sample", sample},
                                                  {"outcome", rollout::to_string(result.outcome)},
                                                  {"reward", result.has_verdict() ? Json(result.reward) : Json()},
                                                  {"why", result.why},
                                                  {"flags", result.flags}}},
                                       record, bounded.opening(), bounded.tools());
  return played;
}

}  // namespace tandem::eval
