#include "archive/data_set.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/text.h"
#include "envs/tasks/task_set.h"
#include "envs/tasks/workspace/kinds.h"
#include "rollout/agent/retelling.h"
#include "rollout/agent/transcript.h"
#include "run/checks.h"
#include "run/packages.h"
#include "run/resume.h"
#include "run/tasks.h"

namespace tandem::archive {
namespace {

struct Retold {
  envs::Opening opening;
  std::vector<rollout::RetoldTurn> turns;
  std::vector<std::vector<std::string>> call_ids;  // by turn and call
};

// What is known of the episode beside its messages, under the names of `tandem episodes`.
Json facts_of(const Json& episode) {
  Json facts = Json::object();
  for (const char* key :
       {"episode", "task", "kind", "split", "outcome", "reward", "terms", "trained_step", "versions"}) {
    if (const auto found = episode.find(key); found != episode.end()) facts[key] = *found;
  }
  return facts;
}

Json messages_of(const Retold& episode) {
  Json messages = Json::array();
  for (const auto& message : episode.opening.messages) messages.push_back(rollout::message_of(message));
  for (size_t t = 0; t < episode.turns.size(); ++t) {
    const auto& [tokens, begin, said, reply] = episode.turns[t];
    Json message = {{"role", "assistant"}, {"content", said.text}};
    if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
    bool is_readable = true;
    for (size_t i = 0; i < said.calls.size(); ++i) {
      const auto& call = said.calls[i];
      const bool is_read = call.error.empty();
      is_readable = is_readable && is_read;
      Json function = {{"name", is_read ? call.call.name : std::string("unreadable")}};
      function["arguments"] = dump_json(is_read ? call.call.arguments : Json::object());
      Json one = {{"id", episode.call_ids[t][i]}, {"type", "function"}};
      one["function"] = std::move(function);
      message["tool_calls"].push_back(std::move(one));
    }
    // Nobody should learn a call that could not be read, nor a turn that says nothing.
    if (!is_readable || (said.calls.empty() && trim(said.text).empty() && said.reasoning.empty()))
      message["weight"] = 0;
    messages.push_back(std::move(message));
    for (size_t i = 0; i < reply.results.size() && i < said.calls.size(); ++i)
      messages.push_back({{"role", "tool"}, {"tool_call_id", episode.call_ids[t][i]}, {"content", reply.results[i]}});
    if (!reply.instruction.empty()) messages.push_back({{"role", "user"}, {"content", reply.instruction}});
  }
  return messages;
}

Json atif_of(const Retold& episode, const Json& facts, const std::string& model, const Json& tools) {
  rollout::AgentRecord record;
  record.end = rollout::AgentEnd::kAnswered;
  for (size_t t = 0; t < episode.turns.size(); ++t) {
    const auto& turn = episode.turns[t];
    rollout::AgentRound round;
    round.turn.text = turn.said.text;
    round.turn.reasoning = turn.said.reasoning;
    round.turn.calls = turn.said.calls;
    round.turn.call_ids = episode.call_ids[t];
    round.turn.model = model;
    round.turn.use = {.prompt = turn.begin, .cached = {}, .completion = turn.tokens.size()};
    for (const auto& result : turn.reply.results) {
      round.outcomes.emplace_back();
      round.outcomes.back().output = result;
    }
    record.rounds.push_back(std::move(round));
  }
  std::string id = fmt::format("{}-{}", model, facts["episode"].get<uint64_t>());
  if (facts.contains("segment")) id += fmt::format("-{}", facts["segment"].get<uint64_t>());
  Json atif = rollout::atif_of({.session_id = id, .agent_version = TANDEM_VERSION, .model = model, .extra = facts},
                               record, episode.opening.messages, tools);
  // When each step happened is not recorded, nor how the agent would have named its end.
  for (Json& step : atif["steps"]) step.erase("timestamp");
  atif["extra"].erase("end");
  if (tools.is_null()) atif["agent"].erase("tool_definitions");
  // Words of the user between two turns are a step of their own.
  Json steps = Json::array();
  size_t t = 0;
  for (Json& step : atif["steps"]) {
    const bool is_agent = step["source"] == "agent";
    steps.push_back(std::move(step));
    if (!is_agent) continue;
    const std::string& instruction = episode.turns[t++].reply.instruction;
    if (!instruction.empty()) steps.push_back({{"step_id", 0}, {"source", "user"}, {"message", instruction}});
  }
  for (size_t i = 0; i < steps.size(); ++i) steps[i]["step_id"] = i + 1;
  atif["final_metrics"]["total_steps"] = steps.size();
  atif["steps"] = std::move(steps);
  return atif;
}

}  // namespace

Result<DataFormat> data_format_named(std::string_view name) {
  if (name == "openai") return DataFormat::kOpenAi;
  if (name == "atif") return DataFormat::kAtif;
  if (name == "parquet") {
    return fail(Status::invalid("--export parquet is not written here: Debian has no library for it")
                    .hint("--export openai > episodes.jsonl, then in Python: datasets.load_dataset(\"json\", "
                          "data_files=\"episodes.jsonl\", split=\"train\").to_parquet(\"episodes.parquet\")"));
  }
  return fail(Status::invalid(
      fmt::format("--export {}: there is no such format{}", name, did_you_mean(name, {"openai", "atif", "parquet"}))));
}

struct DataSetWriter::State {
  DataFormat format;
  std::string model;
  rollout::Conversation conversation;
  envs::Profile profile;
  std::optional<envs::TaskSet> tasks;
  envs::AllowList network;  // of every episode
  std::string packages;     // what a model is told of registries

  Result<envs::Opening> opening_of(const Json& described) const {
    const auto split = TRY(envs::split_from(described["split"].get<std::string>()));
    const std::string id = described["task"].get<std::string>();
    const std::string_view number = std::string_view(id).substr(id.rfind('/') + 1);
    envs::TaskSpec spec{.kind = described["kind"].get<std::string>(), .split = split, .seed = 0};
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), spec.seed);
    if (failed != std::errc()) return fail(Status::corrupt(fmt::format("task {} has no number", id)));
    auto task = TRY(tasks ? tasks->task(spec) : envs::make_task(spec));
    // As an episode of the run begins.
    task.network = TRY(task.network.with(network));
    if (task.base) task.base->tree = TRY(envs::prepare_base(*task.base));
    return envs::opening(task, profile.tools, {}, conversation.listing(), profile.system, packages);
  }

  Json line_of(const Retold& episode, const Json& facts) const {
    // Where the model's template knows no tools, the system message names them, and a list would name them twice.
    const Json tools = conversation.listing() == envs::ToolListing::kByTemplate ? episode.opening.tools : Json();
    if (format == DataFormat::kAtif) return atif_of(episode, facts, model, tools);
    Json line = {{"messages", messages_of(episode)}};
    if (!tools.is_null()) line["tools"] = tools;
    for (const auto& [key, value] : facts.items()) line[key] = value;
    return line;
  }
};

DataSetWriter::DataSetWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
DataSetWriter::DataSetWriter(DataSetWriter&&) noexcept = default;
DataSetWriter& DataSetWriter::operator=(DataSetWriter&&) noexcept = default;
DataSetWriter::~DataSetWriter() = default;

Result<DataSetWriter> DataSetWriter::open(const fs::path& run_dir, DataFormat format) {
  const auto config = TRY(run::read_resolved(run_dir));
  auto conversation = TRY(rollout::Conversation::load(run_dir / "model", run::conversation_settings(config)));
  // The profile that the run recorded is the one that its environments had.
  const auto profile = TRY(envs::profile_of_model(run_dir, TRY(run::profile_of(config))));
  std::optional<envs::TaskSet> tasks;
  if (!config.tasks.path.empty()) tasks = TRY(run::read_recorded_tasks(config, run_dir));
  auto network = TRY(envs::AllowList::parse(config.env.network));
  return DataSetWriter(std::make_unique<State>(State{.format = format,
                                                     .model = fs::weakly_canonical(run_dir).filename().string(),
                                                     .conversation = std::move(conversation),
                                                     .profile = profile,
                                                     .tasks = std::move(tasks),
                                                     .network = std::move(network),
                                                     .packages = run::packages_told(config).value_or("")}));
}

Result<std::vector<Json>> DataSetWriter::lines_of(const Json& described) {
  const auto tokens = described["tokens"].get<std::vector<int32_t>>();
  const auto sampled = described["sampled"].get<std::vector<uint8_t>>();
  if (tokens.empty()) return fail(Status::invalid("its tokens are not on disk"));
  const auto later = described.value("later_segments", std::vector<uint32_t>());
  auto segments = TRY(rollout::retell_segments(state_->conversation, state_->profile.compaction,
                                               TRY(state_->opening_of(described)), tokens, sampled, later));
  std::vector<Json> lines;
  size_t number = 0;  // calls of the episode, so that no two have one id
  for (auto& segment : segments) {
    Retold retold{.opening = std::move(segment.opening), .turns = std::move(segment.turns), .call_ids = {}};
    for (const auto& turn : retold.turns) {
      auto& ids = retold.call_ids.emplace_back();
      for (const auto& call : turn.said.calls) {
        ++number;
        ids.push_back(call.id.empty() ? fmt::format("call{:05}", number) : call.id);
      }
    }
    Json facts = facts_of(described);
    if (segments.size() > 1) {
      facts["segment"] = lines.size() + 1;
      facts["segments"] = segments.size();
    }
    lines.push_back(state_->line_of(retold, facts));
  }
  return lines;
}

}  // namespace tandem::archive
