#include "eval/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/digest.h"
#include "envs/tasks/task_set.h"
#include "eval/tasks.h"

namespace tandem::eval {
namespace {

constexpr int kFormat = 1;

std::string digest_of_json(const Json& json) { return digest_of(dump_json(json)).hex(); }

Json tasks_json(const std::vector<TaskIdentity>& tasks) {
  Json list = Json::array();
  for (const auto& task : tasks) list.push_back({{"task", task.task}, {"kind", task.kind}, {"digest", task.digest}});
  return list;
}

std::string tasks_difference(const std::vector<TaskIdentity>& then, const std::vector<TaskIdentity>& now) {
  for (size_t i = 0; i < std::min(then.size(), now.size()); ++i) {
    if (then[i].task != now[i].task) {
      return fmt::format("the folder has task {} where this suite has {}", then[i].task, now[i].task);
    }
    if (then[i] != now[i]) return fmt::format("task {} is another one than it was", now[i].task);
  }
  if (then.size() != now.size()) {
    const bool is_gone = then.size() > now.size();
    return fmt::format("the folder has {} tasks, this suite {}: {} is {}", then.size(), now.size(),
                       (is_gone ? then[now.size()] : now[then.size()]).task, is_gone ? "gone" : "new");
  }
  return "";
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string Shard::to_string() const { return fmt::format("{}/{}", index, count); }

Result<Shard> Shard::parse(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const auto index = whole_number(text.substr(0, slash)), count = whole_number(text.substr(slash + 1));
    if (index && count && *index >= 1 && *index <= *count && *count <= 10'000)
      return Shard{.index = *index, .count = *count};
  }
  return fail(Status::invalid(fmt::format("\"{}\" is no part of a whole", text))
                  .at("--shard")
                  .hint("the second of four is 2/4"));
}

std::string Identity::tasks_digest() const { return digest_of_json(tasks_json(tasks)); }

std::string Identity::config_digest() const {
  return digest_of_json({{"samples", samples}, {"temperature", temperature}, {"seed", seed}, {"settings", settings}});
}

std::vector<TaskIdentity> Identity::own_tasks() const {
  std::vector<TaskIdentity> own;
  for (size_t i = static_cast<size_t>(shard.index - 1); i < tasks.size(); i += static_cast<size_t>(shard.count))
    own.push_back(tasks[i]);
  return own;
}

Identity identity_of(const Suite& suite, const std::vector<envs::Task>& tasks, std::string model,
                     std::string model_digest, const Shard& shard) {
  Identity identity{.suite = suite.name,
                    .model = std::move(model),
                    .model_digest = std::move(model_digest),
                    .samples = suite.samples,
                    .temperature = suite.temperature,
                    .seed = suite.seed,
                    .tasks = {},
                    .shard = shard,
                    .version = TANDEM_VERSION,
                    .profile = envs::digest_of(suite.profile)};
  identity.settings = {{"turns", suite.limits.turns},
                       {"max_new_tokens", suite.limits.max_new_tokens},
                       {"tokens", suite.limits.tokens},
                       {"context", suite.limits.context},
                       {"weights", suite.weights},
                       {"now", suite.now},
                       {"special_tokens_in_content", suite.special_tokens_in_content},
                       {"output_bytes", suite.profile.output_bytes},
                       {"tools", suite.profile.tools},
                       {"system", suite.profile.system},
                       {"network", suite.env.network}};
  if (suite.env.packages.any()) identity.settings["packages"] = envs::package_identity(suite.env.packages);
  if (suite.profile.compaction.at > 0) {
    const auto& compaction = suite.profile.compaction;
    identity.settings["compaction"] = {{"at", compaction.at},
                                       {"most", compaction.most},
                                       {"request", compaction.request},
                                       {"heading", compaction.heading}};
  }
  if (!suite.encoder_id.empty()) identity.settings["encoder"] = suite.encoder_id;
  for (const auto& task : tasks)
    identity.tasks.push_back({name_of_task(task), task.spec.kind, envs::digest_of_task(task)});
  return identity;
}

Json to_json(const Identity& identity) {
  return {{"format", kFormat},
          {"suite", identity.suite},
          {"model", identity.model},
          {"model_digest", identity.model_digest},
          {"tasks_digest", identity.tasks_digest()},
          {"config_digest", identity.config_digest()},
          {"samples", identity.samples},
          {"temperature", identity.temperature},
          {"seed", identity.seed},
          {"settings", identity.settings},
          {"shard", identity.shard.to_string()},
          {"version", identity.version},
          {"profile", identity.profile},
          {"tasks", tasks_json(identity.tasks)}};
}

Result<Identity> identity_from_json(const Json& json) {
  Identity identity;
  TRY(format_of(json, kFormat));
  try {
    identity.suite = json.at("suite").get<std::string>();
    identity.model = json.at("model").get<std::string>();
    identity.model_digest = json.at("model_digest").get<std::string>();
    identity.samples = json.at("samples").get<int>();
    identity.temperature = json.at("temperature").get<double>();
    identity.seed = json.at("seed").get<uint64_t>();
    identity.settings = json.at("settings");
    identity.shard = TRY(Shard::parse(json.at("shard").get<std::string>()));
    identity.version = json.at("version").get<std::string>();
    identity.profile = json.value("profile", "");
    for (const Json& task : json.at("tasks")) {
      identity.tasks.push_back({task.at("task").get<std::string>(), task.at("kind").get<std::string>(),
                                task.at("digest").get<std::string>()});
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("no evaluation: ") + error.what()));
  }
  return identity;
}

std::string first_difference(const Identity& then, const Identity& now, CompareShards shards) {
  const auto differ = [](std::string_view what, const auto& before, const auto& after) {
    return fmt::format("the folder has {} {}, this is {}", what, before, after);
  };
  if (then.suite != now.suite) return differ("suite", then.suite, now.suite);
  if (then.model_digest != now.model_digest && then.model != kUnknownModel)
    return differ("model", fmt::format("{} ({})", then.model, then.model_digest.substr(0, 12)),
                  fmt::format("{} ({})", now.model, now.model_digest.substr(0, 12)));
  if (auto tasks = tasks_difference(then.tasks, now.tasks); !tasks.empty()) return tasks;
  if (then.samples != now.samples) return differ("samples", then.samples, now.samples);
  if (then.temperature != now.temperature) return differ("temperature", then.temperature, now.temperature);
  if (then.seed != now.seed) return differ("seed", then.seed, now.seed);
  if (shards == CompareShards::kYes && then.shard != now.shard)
    return differ("shard", then.shard.to_string(), now.shard.to_string());
  for (const auto& [key, value] : now.settings.items()) {
    const Json before = then.settings.value(key, Json());
    if (before != value) return differ(key, dump_json(before), dump_json(value));
  }
  return "";
}

std::string digest_of_endpoint(std::string_view model) { return digest_of(fmt::format("endpoint {}", model)).hex(); }

Result<fs::path> model_directory(const fs::path& named) {
  std::error_code error;
  for (const auto& directory : {named, named / "export"}) {
    if (fs::exists(directory / "config.json", error)) return directory;
  }
  return fail(Status::invalid("is no model directory: it has no config.json, and no export/ that has one")
                  .at(named.string())
                  .hint("give a directory of Hugging Face's layout, or a run that has ended; `tandem export` makes one "
                        "of a checkpoint"));
}

}  // namespace tandem::eval
