#include "cli/launch/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/run/run_dir.h"
#include "eval/suite.h"
#include "launch/resources.h"
#include "model/config.h"
#include "run/checks.h"
#include "run/memory.h"
#include "run/read_config.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

// Options that some schedulers alone have.
struct LimitedOption {
  const char* name;
  std::vector<Scheduler> of;
  bool given;
};

// A dotted path in nested objects.
void put(Json& json, std::string_view path, const Json& value) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos)
    json[std::string(path)] = value;
  else
    put(json[std::string(path.substr(0, dot))], path.substr(dot + 1), value);
}

// What is not said by default, as YAML. Relative paths upwards are refused: the cluster has no such folder.
Result<std::string> said_by(const Schema& schema, const std::function<Json(const Field&)>& value_of) {
  Json said = Json::object();
  for (const Field& field : schema.fields()) {
    if (schema.origin(field.path) == "default") continue;
    const Json value = value_of(field);
    if (value.is_string() && value.get<std::string>().starts_with("../")) {
      return fail(
          Status::invalid(fmt::format("{}: {} leads to a folder that is not on the cluster's volume", field.path,
                                      value.get<std::string>()))
              .hint(fmt::format("give the place on the volume: {}=FOLDER, from {}", field.path, launch::kVolume)));
    }
    put(said, field.path, value);
  }
  return said.dump(2) + "\n";
}

// Every run's config is read, so that what is wrong with one is told before any is submitted. The first one's is
// returned.
Result<run::RunConfig> read_configs(const LaunchOptions& options, const std::vector<launch::Variant>& variants,
                                    std::vector<std::string>& from_environment) {
  for (size_t i = variants.size(); i-- > 0;) {
    run::RunConfig config;
    Schema schema = run::schema_of(config);
    std::vector<std::string> overrides = options.overrides;
    overrides.insert(overrides.end(), variants[i].overrides.begin(), variants[i].overrides.end());
    TRY(run::read_config(options.config, overrides, schema, config));
    if (i > 0) continue;
    for (const Field& field : schema.fields()) {
      if (!schema.origin(field.path).starts_with("environment")) continue;
      const Json value = field.get();
      from_environment.push_back(
          fmt::format("{}={}", field.path, value.is_string() ? value.get<std::string>() : dump_json(value)));
    }
    return config;
  }
  return fail(Status::internal("a job without runs"));
}

Result<Json> estimate_of(const run::RunConfig& config, bool is_given) {
  if (run::is_tiny(config.model.path)) return Json::object();
  const auto model = model::read_config(TRY(run::model_to_check(config.model.path)));
  if (model) return run::memory_of(config, *model);
  if (is_given) return Json::object();
  return fail(
      Status(model.error()).hint("what it takes is estimated from the model; where it is not here, --memory says it"));
}

uint64_t bytes_of(double gibibytes) {
  return static_cast<uint64_t>(gibibytes * static_cast<double>(uint64_t{1} << 30));
}

// A path on the volume, from what may be relative to it.
fs::path on_volume(const fs::path& path) { return (fs::path(launch::kVolume) / path).lexically_normal(); }

}  // namespace

Status check_options(const LaunchOptions& options, Scheduler scheduler) {
  using enum Scheduler;
  const auto& slurm = options.slurm;
  const auto& kubernetes = options.kubernetes;
  const bool is_eval = options.of == "eval";
  const std::vector<LimitedOption> limited = {
      {"--time", {kSlurm}, !slurm.time.empty()},
      {"--partition", {kSlurm}, !slurm.partition.empty()},
      {"--account", {kSlurm}, !slurm.account.empty()},
      {"--at-once", {kSlurm}, slurm.at_once > 0},
      {"--nodes", {kSlurm}, slurm.nodes > 1},
      {"--extra", {kSlurm, kRay}, !options.extra.empty()},
      {"--image", {kKubernetes}, !kubernetes.image.empty()},
      {"--namespace", {kKubernetes}, !kubernetes.name_space.empty()},
      {"--queue", {kKubernetes}, !kubernetes.queue.empty()},
      {"--claim", {kKubernetes}, !kubernetes.claim.empty()},
      {"--schedule", {kKubernetes}, !options.schedule.empty()},
      {"--of eval", {kKubernetes}, is_eval},
      {"--address", {kRay}, !options.ray.address.empty()},
      {"--runtime-env", {kRay}, !options.ray.runtime_env.empty()},
      {"--render", {kSlurm, kKubernetes, kRay}, !options.render.empty()},
      {"--program", {kSlurm, kRay, kLocal}, !options.program.empty()},
  };
  for (const LimitedOption& option : limited) {
    if (option.given && std::find(option.of.begin(), option.of.end(), scheduler) == option.of.end())
      return Status::invalid(fmt::format("{} has no meaning with --on {}", option.name, options.on));
  }
  if (is_eval != !options.schedule.empty())
    return Status::invalid("--schedule and --of eval belong together: a suite, evaluated every night");
  if (is_eval && !(options.run_dir.empty() && options.seeds.empty() && options.sweeps.empty()))
    return Status::invalid("--run-dir, --seeds and --sweep are for runs; --nights is the folder of an evaluation");
  return {};
}

Result<launch::Job> prepare_job(const LaunchOptions& options, Scheduler scheduler) {
  launch::Job job;
  job.variants = TRY(launch::variants_of(options.seeds, options.sweeps));
  std::vector<std::string> from_environment;
  const run::RunConfig config = TRY(read_configs(options, job.variants, from_environment));
  if (options.slurm.nodes > 1 && !config.run.hosts.empty())
    return fail(Status::invalid("--nodes makes hosts of the nodes of the job; run.hosts has its own").at("run.hosts"));
  // The estimate is for the first run; where another of a sweep takes more, --cores and --memory say so.
  const Json memory = TRY(estimate_of(config, options.memory_gb > 0));
  job.resources = launch::resources_of(config, memory, options.cores);
  if (options.memory_gb > 0) job.resources.memory_bytes = bytes_of(options.memory_gb);
  const bool on_cluster = scheduler == Scheduler::kKubernetes;
  if (!on_cluster) {  // whose config says these
    job.overrides = from_environment;
    job.overrides.insert(job.overrides.end(), options.overrides.begin(), options.overrides.end());
  }
  if (scheduler != Scheduler::kLocal) {
    const auto threads = launch::thread_overrides(config, job.resources.cores, options.slurm.nodes);
    job.overrides.insert(job.overrides.end(), threads.begin(), threads.end());
  }
  std::error_code error;
  job.program = options.program.empty() ? fs::read_symlink("/proc/self/exe", error).string() : options.program;
  job.config = fs::absolute(options.config).lexically_normal().string();
  job.working_dir = fs::current_path();
  const std::string stem = fs::path(options.config).stem();
  const fs::path run_dir = options.run_dir.empty() ? free_run_dir(config.run.dir, stem) : fs::path(options.run_dir);
  job.run_dir = on_cluster ? on_volume(run_dir) : fs::absolute(run_dir).lexically_normal();
  job.name = launch::plain_name(job.run_dir.filename().string());
  job.most_restarts = options.restarts;
  return job;
}

Result<std::string> config_text(const LaunchOptions& options) {
  run::RunConfig config;
  Schema schema = run::schema_of(config);
  TRY(schema.read(options.config, options.overrides));
  return said_by(schema, [](const Field& field) { return field.get(); });
}

Result<NightlyJob> prepare_nightly(const LaunchOptions& options) {
  eval::Suite suite;
  Schema schema = eval::schema_of(suite);
  TRY(schema.read(options.config, options.overrides));
  NightlyJob job;
  job.suite = TRY(said_by(schema, [](const Field& field) {
    const Json value = field.get();
    const bool is_path = field.path == "model" || field.path == "tasks.path" || field.path == "env.profile";
    if (!is_path || !value.is_string() || value.get<std::string>().empty() ||
        value.get<std::string>().starts_with("../"))
      return value;
    return Json(on_volume(value.get<std::string>()).string());
  }));
  job.nightly.name = fs::path(options.config).stem();
  job.nightly.schedule = options.schedule;
  job.nightly.nights = on_volume(options.nights);
  job.nightly.resources = {.cores = options.cores > 0 ? options.cores : launch::kDefaultCores,
                           .memory_bytes = bytes_of(options.memory_gb > 0 ? options.memory_gb : 8)};
  return job;
}

}  // namespace tandem::cli
