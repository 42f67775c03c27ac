#include "envs/server/session_record.h"

#include <fmt/format.h>

namespace tandem::envs {

void SessionRecord::begin(const Attempt& attempt, const Opening& opening) {
  const Task& task = attempt.task();
  played_ = {.task = task.name.empty() ? task.spec.id() : task.name,
             .kind = task.spec.kind,
             .split = std::string(to_string(task.spec.split)),
             .instruction = task.instruction};
  for (const auto& message : opening.messages)
    played_.messages.push_back({{"role", message.role}, {"content", message.content}});
}

void SessionRecord::turn(const Said& said, std::span<const ToolOutcome> outcomes) {
  const size_t turn = played_.turns();
  Json message = {{"role", "assistant"}, {"content", said.text}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  Json calls = Json::array();
  std::vector<std::string> ids;  // not every dialect has some
  for (const auto& parsed : said.calls) {
    ids.push_back(parsed.id.empty() ? fmt::format("call_{}_{}", turn, ids.size()) : parsed.id);
    calls.push_back({{"id", ids.back()},
                     {"type", "function"},
                     {"function", {{"name", parsed.call.name}, {"arguments", dump_json(parsed.call.arguments)}}}});
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  played_.messages.push_back(std::move(message));
  for (size_t i = 0; i < outcomes.size() && i < said.calls.size(); ++i) {
    played_.messages.push_back({{"role", "tool"}, {"tool_call_id", ids[i]}, {"content", outcomes[i].output}});
    played_.calls.push_back({{"turn", turn},
                             {"name", said.calls[i].call.name},
                             {"arguments", said.calls[i].call.arguments},
                             {"error", said.calls[i].error},
                             {"output", outcomes[i].output},
                             {"exit_code", outcomes[i].exit_code}});
  }
}

void SessionRecord::answer(const Said& said, const std::optional<std::string>& instruction) {
  turn(said, {});
  if (instruction) played_.messages.push_back({{"role", "user"}, {"content", *instruction}});
}

Result<Grade> SessionRecord::score(Attempt& attempt, const Ending& ending, Rewards* rewards, SandboxBackend& backend,
                                   const EpisodeOptions& options) {
  const Task task = rewards != nullptr ? attempt.task() : Task();
  auto grade = TRY(attempt.score(ending.answer));
  if (rewards == nullptr) return grade;
  RewardPlace where{.runner = sandbox_runner(backend, options.test_time_limit_s, options.holder), .place = {}};
  where.place.links = task.links;
  where.place.image = task.image;
  where.place.disk_mb = task.disk_mb;
  played_.before = task.files;
  if (const Collected* left = attempt.left_behind()) {
    played_.after = left->files;
    played_.files_complete = left->complete;
    where.place.files = left->files;
    where.place.programs = left->programs;
    where.place.details = left->details;
    for (const auto& [path, target] : left->details.links) where.place.files.erase(path);
  }
  played_.answer = ending.answer;
  played_.truncated = ending.truncated;
  played_.reward = grade.reward;
  played_.terms = grade.terms;
  played_.why = grade.why;
  const auto answer = TRY(rewards->score(played_, where));
  grade.terms.insert(answer.terms.begin(), answer.terms.end());
  if (!answer.turns.empty()) grade.turns = answer.turns;
  grade.shown = rewards->shown(played_);
  played_ = {};
  return grade;
}

}  // namespace tandem::envs
