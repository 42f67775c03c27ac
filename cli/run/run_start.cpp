#include "cli/run/run_start.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_line.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run/demonstrations.h"
#include "cli/run/run_dir.h"
#include "cli/run/run_inputs.h"
#include "hosts/take_over.h"
#include "model/weights.h"
#include "rollout/coordinator.h"
#include "run/checks.h"
#include "run/devices.h"
#include "run/effects.h"
#include "run/read_config.h"
#include "run/rewards.h"
#include "run/run_step.h"
#include "run/search.h"
#include "run/supervisor.h"
#include "run/tasks.h"
#include "trainer/torch/function_loader.h"
#include "wire/secret.h"

namespace tandem::cli {
namespace {

// The key of the hosts, before it is used.
Status check_key(const fs::path& key) {
  std::error_code error;
  if (fs::exists(key, error)) {
    TRY(wire::Secret::read(key));
    return {};
  }
  return Status::invalid(fmt::format("{}: there is no such file", key.string()))
      .at("run.key")
      .hint("`tandem host --key FILE` makes it on a host; copy it here");
}

Status choose_folder(const RunOptions& options, RunStart& start) {
  start.run_dir = options.run_dir;
  if (!start.run_dir.empty()) return {};
  const auto& folder = start.config.run.dir;
  std::optional<fs::path> before;
  if (options.resume) before = TRY(newest_run(folder, start.stem));
  if (options.resume_or_start) before = newest_open_run(folder, start.stem);
  if (before) fmt::print(stderr, "going on with {}\n", before->string());
  start.has_new_name = !before;
  start.run_dir = before ? *before : free_run_dir(folder, start.stem);
  return {};
}

// Checks the config as it is at its places, with models where the run has copies of them: a step of another run was
// copied when this one began, and may be there no more.
Status check_config(RunStart& start) {
  start.checked = start.config;
  const auto has = [&](const char* name) { return start.exists && fs::exists(start.run_dir / name / "config.json"); };
  if (has("model") && !run::is_tiny(start.config.model.path))
    start.checked.model.path = (start.run_dir / "model").string();
  if (has("teacher") && !start.config.algorithm.teacher.path.empty())
    start.checked.algorithm.teacher.path = (start.run_dir / "teacher").string();
  if (!start.exists) TRY(run::check_at_places(start.config, start.schema));
  TRY(run::check_inputs(start.checked));
  if (!start.exists) TRY(check_demonstrations(start.checked));
  TRY(trainer::load_functions(TRY(run::algorithm_of(start.config))));
  if (!start.config.run.hosts.empty()) TRY(check_key(start.config.run.key));
  return {};
}

}  // namespace

Status find_run(const RunOptions& options, RunStart& start) {
  run::RunConfig& config = start.config;
  start.schema.known_elsewhere(keys_of_all_configs());
  const bool may_go_on = options.resume || options.resume_or_start;
  TRY(run::read_config(options.config, options.overrides, start.schema, config, may_go_on));
  if (auto& lock = config.env.packages.lock; !lock.empty()) lock = fs::absolute(lock).lexically_normal().string();
  start.stem = fs::path(options.config).stem();
  TRY(choose_folder(options, start));
  const fs::path& run_dir = start.run_dir;
  if (!is_valid_utf8(run_dir.native()))
    return Status::invalid("the name of the run directory is not UTF-8, as its files must write it");
  if (!start.has_new_name && fs::exists(run_dir)) {
    start.claim = TRY(run::claim_run_dir(run_dir));
    TRY(run::check_run_files(run_dir));
    TRY(run::check_formats(run_dir));
    TRY(hosts::check_is_no_copy(run_dir));
  }
  start.exists = !start.has_new_name && fs::exists(run_dir / "config.resolved.json");
  if (start.exists && !may_go_on) {
    return Status::invalid(fmt::format("{} holds a run already", run_dir.string()))
        .hint("go on with it by --resume, or choose another --run-dir");
  }
  if (!start.exists && options.resume)
    return Status::invalid(fmt::format("{} holds no run to resume", run_dir.string()));
  start.given = run::given_keys(start.schema);
  start.recorded = config;
  // Beside what the run has already, where it goes on.
  const auto warn = [&] {
    for (const std::string& note : run::without_effect(config, start.schema)) fmt::print(stderr, "warning: {}\n", note);
  };
  if (!start.exists) {
    warn();
    return {};
  }
  const run::RecordedConfig before = TRY(run::read_recorded(run_dir));
  run::ResumedConfig resumed = TRY(run::resume_config(before, config, start.schema, run_dir));
  start.recorded = before.config;
  start.given = std::move(resumed.given);
  start.changes = std::move(resumed.changes);
  config = std::move(resumed.config);
  warn();
  return run::check(config);
}

Result<bool> is_done(RunStart& start) {
  if (!start.exists) return false;
  int& steps = start.config.run.steps;
  const auto ledger =
      TRY(rollout::read_books(start.run_dir, [&] { return run::plan_of(start.recorded, start.run_dir); }));
  steps = std::max(steps, ledger.plan().steps);  // killed before the config was written
  if (!ledger.finished() || steps != ledger.plan().steps) return false;
  if (start.changes.empty()) return true;
  return fail(
      Status::invalid(fmt::format("{} cannot change: {} is done", start.changes.front().key, start.run_dir.string()))
          .hint(fmt::format("run.steps above {} makes it go on", ledger.plan().steps)));
}

Status check_start(RunStart& start) {
  run::RunConfig& config = start.config;
  for (const auto& [key, before, after] : start.changes)
    fmt::print(stderr, "{}: {} -> {}\n", key, dump_json(before), dump_json(after));
  TRY(check_config(start));
  if (!config.tasks.path.empty())
    start.tasks = TRY(start.exists ? run::read_recorded_tasks(config, start.run_dir) : run::read_task_set(config));
  start.encoder = TRY(run::encoder_of(config));
  config.env.encoder = start.encoder ? start.encoder->string() : "";
  start.is_tiny = run::is_tiny(config.model.path);
  if (start.is_tiny) TRY(tiny_settings(config));
  if (start.is_tiny && !start.exists) TRY(check_tiny_adapter(config));
  if (!start.is_tiny) {
    const auto model = TRY(model::read_config(TRY(run::model_to_check(start.checked.model.path))));
    start.memory = TRY(run::memory_of(start.checked, model));
  }
  start.topology = TRY(run::topology_of(config));
  TRY(run::find_devices(config));
  TRY(run::check_sleep(config));
  start.memory_needed = run::memory_need_here(start.memory, start.topology);
  start.memory_here = memory_room();
  start.memory_lack = run::memory_warning_of(start.memory_needed, start.memory_here, address_space_limit());
  if (!start.memory_lack.empty()) fmt::print(stderr, "warning: {}\n", start.memory_lack);
  return {};
}

Result<run::DiskGrowth> growth_of(const run::RunConfig& config, const fs::path& model) {
  return run::disk_growth_of(config, TRY(model::read_config(model)));
}

}  // namespace tandem::cli
