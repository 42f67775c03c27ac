#include "run/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tandem::run {

namespace {

// Of RUN/config.resolved.json. 1, without the keys "format" and "given", is read too.
constexpr int kConfigFormat = 2;

// What a run is beside its plan. An entry that ends in a dot stands for all keys below it.
constexpr std::array<std::string_view, 23> kFixed = {"model.",
                                                     "algorithm.teacher.path",
                                                     "algorithm.teacher.model",
                                                     "algorithm.teacher.hint",
                                                     "algorithm.teacher.hint_tokens",
                                                     "algorithm.demonstrations.data",
                                                     "reward.command",
                                                     "reward.place",
                                                     "reward.files",
                                                     "reward.judge_model",
                                                     "reward.judge_rubric",
                                                     "reward.judge_bytes",
                                                     "tasks.",
                                                     "lora.",
                                                     "trainer.optimizer",
                                                     "trainer.moments",
                                                     "trainer.slots",
                                                     "env.tools",
                                                     "env.mcp_servers",
                                                     "env.output_bytes",
                                                     "env.compact_at",
                                                     "rollout.max_tokens",
                                                     "rollout.max_new_tokens"};
constexpr std::array<std::string_view, 1> kFree = {"tasks.floors"};

bool is_fixed(std::string_view key) {
  if (std::find(kFree.begin(), kFree.end(), key) != kFree.end()) return false;
  return std::any_of(kFixed.begin(), kFixed.end(), [&](std::string_view fixed) {
    return fixed.ends_with('.') ? key.starts_with(fixed) : key == fixed;
  });
}

// A config can be changed by path through a table of its own.
void set(RunConfig& config, const std::string& key, const Json& value) {
  Schema schema = schema_of(config);
  for (const Field& field : schema.fields()) {
    if (field.path == key) field.set(value);
  }
}

// Whether the run would be another one with this value alone.
Result<bool> is_of_plan(const RunConfig& recorded, const ConfigChange& change, const fs::path& run_dir) {
  RunConfig changed = recorded;
  set(changed, change.key, change.after);
  return TRY(plan_of(changed, run_dir)) != TRY(plan_of(recorded, run_dir));
}

}  // namespace

Json flat(const RunConfig& config) {
  RunConfig copy = config;
  Json values = Json::object();
  for (const Schema schema = schema_of(copy); const Field& field : schema.fields()) values[field.path] = field.get();
  return values;
}

std::set<std::string> given_keys(const Schema& schema) {
  std::set<std::string> given;
  for (const Field& field : schema.fields()) {
    const std::string origin = schema.origin(field.path);
    if (origin.starts_with("command line") || origin.starts_with("environment")) given.insert(field.path);
  }
  return given;
}

Result<RecordedConfig> read_recorded(const fs::path& run_dir) {
  const fs::path path = run_dir / "config.resolved.json";
  const auto parsed = parse_json(TRY(read_file(path, 1 << 20)));
  if (!parsed) return fail(Status(parsed.error()).at(path.string()));
  const Json& json = *parsed;
  RecordedConfig recorded;
  Schema schema = schema_of(recorded.config);
  if (Status status = schema.apply_resolved(json); !status.ok()) return fail(std::move(status).at(path.string()));
  auto format = format_of(json, kConfigFormat);
  if (!format) return fail(std::move(format).error().at(path.string()));
  recorded.format = *format;
  for (const Json& key : json.value("given", Json::array())) {
    if (key.is_string()) recorded.given.insert(key.get<std::string>());
  }
  return recorded;
}

Result<RunConfig> read_resolved(const fs::path& run_dir) { return std::move(TRY(read_recorded(run_dir)).config); }

std::string recorded_text(const RunConfig& config, const std::set<std::string>& given) {
  RunConfig copy = config;
  Json json = {{"format", kConfigFormat}, {"given", given}};
  json.update(schema_of(copy).resolved());
  return json.dump(2) + "\n";
}

Status write_recorded(const fs::path& run_dir, const RunConfig& config, const std::set<std::string>& given) {
  return write_file(run_dir / "config.resolved.json", recorded_text(config, given));
}

Result<ResumedConfig> resume_config(const RecordedConfig& recorded, const RunConfig& wanted, const Schema& schema,
                                    const fs::path& run_dir) {
  ResumedConfig resumed{.config = recorded.config, .given = recorded.given, .changes = {}};
  const std::set<std::string> given = given_keys(schema);
  const Json before = flat(recorded.config), after = flat(wanted);
  std::vector<std::string> refused;
  for (const Field& field : schema.fields()) {
    const std::string& key = field.path;
    const ConfigChange change{key, before[key], after[key]};
    const bool is_longer = key == "run.steps" && wanted.run.steps > recorded.config.run.steps;
    if (!given.contains(key)) {
      // The file's. Of format 1 nobody knows what the command line had said.
      const bool says = schema.origin(key) != "default" && recorded.format > 1 && !recorded.given.contains(key);
      if (!says && !(is_longer && !recorded.given.contains(key))) {
        // It goes on as before in later lives, too, whose recorded config is of a newer format.
        if (recorded.format == 1 && change.before != change.after) resumed.given.insert(key);
        continue;
      }
    }
    if (change.before == change.after) continue;
    const bool is_shorter = key == "run.steps" && !is_longer;
    if (is_shorter || (!is_longer && (is_fixed(key) || TRY(is_of_plan(recorded.config, change, run_dir))))) {
      refused.push_back(fmt::format("{} is {} in this run and cannot become {}{}", key, dump_json(change.before),
                                    dump_json(change.after), is_shorter ? ": a run can only be made longer" : ""));
      continue;
    }
    set(resumed.config, key, change.after);
    if (given.contains(key)) resumed.given.insert(key);
    resumed.changes.push_back(change);
  }
  if (!refused.empty()) {
    return fail(Status::invalid(fmt::format("{}", fmt::join(refused, "\n")))
                    .hint("leave it out to go on as before, or start a new run"));
  }
  return resumed;
}

}  // namespace tandem::run
