// `tandem tasks show`: one task as a model meets it, and how it is checked.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/iso_time.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/tasks/base_shown.h"
#include "cli/tasks/task_source.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/backends.h"
#include "envs/episodes/episode.h"
#include "rollout/agent/conversation.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

void print_text(std::string_view text) {
  for (const auto line : split(trim(text), '\n')) fmt::print("    {}\n", line);
}

// Leaves out what the grader puts around a script of tests: folders, PATH, variables.
std::string shown_command(const envs::CommandCheck& check, const std::string& command) {
  for (const char* script : {"test.sh", "run-tests.sh"}) {
    if (!check.verifier.empty() && check.files.contains("tandem-tests/" + std::string(script)))
      return "bash /tests/" + std::string(script);
  }
  return command;
}

struct Met {
  envs::Opening opening;
  std::string lacks;  // what is not in it, and why; empty: nothing
};

Result<envs::Opening> opening_of_episode(const envs::Task& task, envs::ToolListing listing) {
  const auto backend = TRY(envs::start_sandboxes());
  const auto episode = TRY(envs::Episode::open(task, *backend));
  return episode->opening(listing);
}

// Which tools servers have is known once they run, in a sandbox with the task's files.
Met met_by_model(const envs::Task& task, envs::ToolListing listing) {
  const auto without = [&] { return envs::opening(task, envs::prompted_tools(), {}, listing); };
  if (task.servers.empty()) return {.opening = without(), .lacks = ""};
  auto opening = opening_of_episode(task, listing);
  if (opening) return {.opening = std::move(*opening), .lacks = ""};
  std::vector<std::string> names;
  for (const auto& server : task.servers) names.push_back(server.name);
  return {.opening = without(),
          .lacks = fmt::format("the tools of {} are left out: {}", join(names, ", "), opening.error().to_string())};
}

}  // namespace

Result<int> show_task(envs::Task task, const ShowOptions& options) {
  // A model is told what lies at the top of the base.
  if (task.base && !task.base->tree) task.base->tree = unpacked(*task.base);
  std::optional<rollout::Conversation> conversation;
  if (!options.model.empty())
    conversation = TRY(rollout::Conversation::load(TRY(run::model_to_check(options.model)), {.now = local_time()}));
  const auto listing = conversation ? conversation->listing() : envs::ToolListing::kInMessages;
  const auto met = met_by_model(task, listing);
  const auto& opening = met.opening;
  if (task.base && !task.base->tree) task.base->tree = unpacked(*task.base);  // by now it may be
  if (!met.lacks.empty()) spdlog::warn("{}", met.lacks);
  const int code = met.lacks.empty() ? kDone : kIncomplete;
  if (options.json) {
    Json messages = Json::array();
    for (const auto& message : opening.messages)
      messages.push_back({{"role", message.role}, {"content", message.content}});
    Json shown = {
        {"name", name_of(task)},  {"kind", task.spec.kind},
        {"messages", messages},   {"tools", listing == envs::ToolListing::kByTemplate ? opening.tools : Json()},
        {"files", task.files},    {"base", json_of(task.base)},
        {"setup", task.setup},    {"needs", task.needs},
        {"image", task.image},    {"turns", task.max_turns},
        {"check", check_of(task)}};
    if (!met.lacks.empty()) shown["lacks"] = met.lacks;
    if (conversation) shown["prompt_ids"] = met.lacks.empty() ? Json(TRY(conversation->prompt(opening))) : Json();
    fmt::print("{}\n", shown.dump(2, ' ', false, Json::error_handler_t::replace));
    return code;
  }
  fmt::print("{}, kind {}, at most {} turn{}\n", name_of(task), task.spec.kind, task.max_turns,
             task.max_turns == 1 ? "" : "s");
  for (const auto& message : opening.messages) {
    fmt::print("\n{}\n", message.role);
    print_text(message.content);
  }
  if (listing == envs::ToolListing::kByTemplate) fmt::print("\ntools, as the model's template writes them\n");
  for (const auto& tool : listing == envs::ToolListing::kByTemplate ? opening.tools : Json::array())
    print_text(dump_json_line(tool));
  for (size_t i = 1; i < task.steps.size(); ++i) {
    fmt::print("\nuser, after step {}\n", task.steps[i - 1].name);
    print_text(task.steps[i].instruction);
  }
  fmt::print("\nchecked by {}{}\n", check_of(task), task.steps.empty() ? "" : " in the first step");
  if (task.expectation.commands) {
    const auto& check = *task.expectation.commands;
    for (const auto& each : check.commands) print_text(shown_command(check, each.command));
  }
  if (task.base) fmt::print("begins on {}\n", words_of(*task.base));
  if (task.base && !task.base->tree)
    fmt::print("a model is told what lies at its top, which is read once it is there\n");
  for (const auto& need : task.needs) fmt::print("needs {}\n", need);
  if (!task.image.empty()) fmt::print("in a container of {}\n", task.image);
  return code;
}

}  // namespace tandem::cli
