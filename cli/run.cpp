#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <thread>

#include "base/text.h"
#include "cli/command.h"
#include "cli/supervisor.h"
#include "envs/floors.h"
#include "envs/sandbox/namespace_backend.h"
#include "model/weights.h"
#include "rollout/conversation.h"

namespace tandem::cli {

namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string run_dir;
  bool resume = false, dry_run = false, json = false;
};

std::atomic<int> interrupts{0};
void on_signal(int) { ++interrupts; }

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

// The newest run of this config that has not ended well, for --resume without --run-dir.
Result<fs::path> newest_run(const fs::path& folder, const std::string& stem) {
  fs::path best;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(stem + "-") && fs::exists(entry.path() / "config.resolved.json") && name > best.filename().string()) best = entry.path();
  }
  if (best.empty()) {
    return fail(Status::invalid(fmt::format("there is no run of {} in {} to resume", stem, folder.string())).hint("give --run-dir, or start one without --resume"));
  }
  return best;
}

// Everything that can be known to be wrong before a process is started or a file written.
Status check_inputs(const RunConfig& config) {
  TRY(check(config));
  const auto model = TRY(model::read_config(config.model.path));
  TRY(model::parameter_layout(model));
  TRY(rollout::Conversation::load(config.model.path));
  if (config.rollout.max_tokens > model.max_positions) {
    return Status::invalid(fmt::format("rollout.max_tokens is {}, the model takes at most {}", config.rollout.max_tokens, model.max_positions));
  }
  TRY(envs::NamespaceBackend::start());
  return {};
}

Json memory_table(const RunConfig& config, const model::ModelConfig& model) {
  const auto layout = model::parameter_layout(model);
  const uint64_t n = layout ? layout->elements : 0;
  const uint64_t page = 2ull * 64 * model.kv_heads * model.head_size * model.layers * 2;
  const uint64_t pages = static_cast<uint64_t>(config.rollout.slots) * ((config.rollout.max_tokens + 63) / 64) * 3 / 2;
  const uint64_t row = 2ull * model.layers * (3ull * model.width + model.heads * model.head_size * 2 + 2 * model.kv_heads * model.head_size + 2 * model.mlp_width);
  return {{"trainer", {{"masters, gradients and moments", 16 * n}, {"weights and panels", 6 * n}, {"published version", 2 * n},
                       {"activations of one pass", row * config.trainer.max_pass_tokens}}},
          {"rollout (each)", {{"weights, live and coming", 8 * n}, {"keys and values", page * pages}}}};
}

void print_plan(const RunConfig& config, const Schema& schema, const Json& memory) {
  const auto& t = config.trainer;
  fmt::print("batch     {} groups x {} episodes = {} episodes a step, {} steps, {} episodes in all\n", t.groups_per_step, t.group_size,
             t.groups_per_step * t.group_size, config.run.steps, t.groups_per_step * t.group_size * config.run.steps);
  fmt::print("held out  {} tasks x ({} samples + 1 greedy), before and after\n", config.tasks.heldout, config.tasks.heldout_samples);
  fmt::print("processes coordinator, env, trainer, {} x rollout with {} slots\n", config.rollout.workers, config.rollout.slots);
  for (const auto& [role, parts] : memory.items()) {
    uint64_t total = 0;
    for (const auto& [what, bytes] : parts.items()) total += bytes.get<uint64_t>();
    fmt::print("memory    {}: {}\n", role, format_bytes(total));
    for (const auto& [what, bytes] : parts.items()) fmt::print("            {:<32} {}\n", what, format_bytes(bytes.get<uint64_t>()));
  }
  fmt::print("config\n");
  for (const Field& field : schema.fields()) fmt::print("  {} = {}  ({})\n", field.path, dump_json(field.get()), schema.origin(field.path));
}

// The scripted floors, on the held-out tasks of the plan.
Json play_floors(const RunConfig& config, envs::SandboxBackend& backend, const std::atomic<bool>& cancelled) {
  Json rates = Json::object();
  for (const envs::Floor floor : envs::floors()) {
    double sum = 0;
    int count = 0;
    const int kinds = static_cast<int>(config.tasks.kinds.size());
    for (int task = 0; task < config.tasks.heldout && !cancelled; ++task) {
      const auto made = envs::make_task({.kind = config.tasks.kinds[task % kinds], .split = envs::Split::kHeldout, .seed = static_cast<uint64_t>(task / kinds)});
      if (!made) continue;
      const auto grade = envs::play_floor(floor, *made, backend);
      if (!grade) continue;
      sum += grade->reward;
      ++count;
    }
    if (count > 0) rates[std::string(envs::to_string(floor))] = sum / count;
  }
  return rates;
}

std::string plain_line(const Json& status, const Json& report) {
  std::string line = fmt::format("{} {} step {}/{}", status.value("state", ""), status.value("phase", ""), status.value("step", 0), status.value("steps", 0));
  if (report.contains("episodes")) {
    for (const auto& [state, count] : report["episodes"]["states"].items()) line += fmt::format("  {} {}", state, count.get<uint64_t>());
  }
  if (report.contains("last_step") && report["last_step"].is_object()) {
    const Json& last = report["last_step"];
    line += fmt::format("  success {:.2f}  logprob diff {} over {}", last.value("success", 0.0), last.value("max_abs_logprob_diff", 0.0), last.value("compared_tokens", 0));
  }
  return line;
}

Result<int> run(const Options& options) {
  RunConfig config;
  Schema schema = schema_of(config);
  TRY(schema.read(options.config, options.overrides));
  const std::string stem = fs::path(options.config).stem();
  fs::path run_dir = options.run_dir;
  if (run_dir.empty()) run_dir = options.resume ? TRY(newest_run(config.run.dir, stem)) : fs::path(config.run.dir) / fmt::format("{}-{}", stem, timestamp());
  const bool exists = fs::exists(run_dir / "config.resolved.json");
  if (exists && !options.resume) {
    return fail(Status::invalid(fmt::format("{} holds a run already", run_dir.string())).hint("go on with it by --resume, or choose another --run-dir"));
  }
  if (!exists && options.resume) return fail(Status::invalid(fmt::format("{} holds no run to resume", run_dir.string())));
  if (exists) {
    // What a run is does not change when it goes on; only its length may.
    const int steps = config.run.steps;
    config = TRY(read_resolved(run_dir));
    config.run.steps = std::max(steps, config.run.steps);
  }
  TRY(check_inputs(config));
  const auto model_config = TRY(model::read_config(config.model.path));
  const Json memory = memory_table(config, model_config);
  if (options.dry_run) {
    if (options.json) fmt::print("{}\n", dump_json(Json{{"config", schema_of(config).resolved()}, {"memory", memory}}));
    else print_plan(config, schema, memory);
    return kDone;
  }

  TRY(make_directories(run_dir));
  if (!exists && !options.config.empty()) TRY(write_file(run_dir / "config.yaml", TRY(read_file(options.config, 1 << 20))));
  TRY(write_file(run_dir / "config.resolved.json", schema_of(config).resolved().dump(2) + "\n"));
  std::error_code error;
  if (!fs::exists(run_dir / "model")) fs::create_directory_symlink(fs::absolute(config.model.path), run_dir / "model", error);
  if (error) return fail(Status::from_errno((run_dir / "model").string(), error.value()));
  int attempt = 1;
  while (fs::exists(run_dir / "logs" / fmt::format("attempt_{}", attempt))) ++attempt;

  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
  const SystemClock clock;
  const Time started = clock.now();
  Supervisor supervisor(run_dir, config, clock, attempt);
  for (const auto& line : supervisor.sweep()) fmt::print(stderr, "swept: {}\n", line);
  fmt::print(stderr, "run {}\n", run_dir.string());
  TRY(supervisor.start());

  std::atomic<bool> floors_cancelled{false};
  std::jthread floors;
  if (config.tasks.floors && config.tasks.heldout > 0 && !fs::exists(run_dir / "floors.json")) {
    floors = std::jthread([&] {
      auto backend = envs::NamespaceBackend::start(run_dir.string());
      if (!backend) return;
      const Json rates = play_floors(config, **backend, floors_cancelled);
      if (!floors_cancelled) (void)write_file(run_dir / "floors.json", rates.dump(2) + "\n");
    });
  }

  int seen_interrupts = 0;
  size_t shown_notes = 0;
  Time next_line = clock.now();
  std::string last_line;
  while (supervisor.turn()) {
    while (seen_interrupts < interrupts) {
      ++seen_interrupts;
      supervisor.interrupt();
    }
    for (; shown_notes < supervisor.notes().size(); ++shown_notes) fmt::print(stderr, "{}\n", supervisor.notes()[shown_notes]);
    if (clock.now() < next_line) continue;
    next_line = clock.now() + std::chrono::seconds(5);
    const std::string line = plain_line(supervisor.status(), supervisor.report());
    if (line != last_line) fmt::print(stderr, "{:>8}  {}\n", format_seconds(to_seconds(clock.now() - started)), line);
    last_line = line;
  }
  floors_cancelled = true;
  if (floors.joinable()) floors.join();

  const auto end = supervisor.end();
  const int exit = end == Supervisor::End::kDone ? kDone : end == Supervisor::End::kInterrupted ? kInterrupted : kFailed;
  const Json record = {{"run_id", fs::absolute(run_dir).filename().string()}, {"exit", exit}, {"wall_seconds", to_seconds(clock.now() - started)},
                       {"restarts", supervisor.restarts()}, {"attempt", attempt}, {"last_report", supervisor.report()}};
  TRY(write_file(run_dir / "supervisor.json", record.dump(2) + "\n"));
  if (end == Supervisor::End::kFailed) {
    TRY(write_file(run_dir / "failure.json", Json{{"reason", supervisor.failure()}, {"time", clock.unix_seconds()}, {"status", supervisor.status()}}.dump(2) + "\n"));
    return fail(Status::internal(supervisor.failure()).at(run_dir.string()));
  }
  return exit;
}

}  // namespace

Action add_run(CLI::App& command) {
  auto options = std::make_shared<Options>();
  command.add_option("config", options->config, "YAML file")->required()->check(CLI::ExistingFile);
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_option("--run-dir", options->run_dir, "Folder of the run (default: a new one below runs/)");
  command.add_flag("--resume", options->resume, "Go on with the run in --run-dir, or with the newest of this config");
  command.add_flag("--dry-run", options->dry_run, "Say what would be done, with memory and batch arithmetic, and do nothing");
  command.add_flag("--json", options->json, "Print results as JSON");
  command.footer("Examples:\n  tandem run configs/quickstart.yaml\n  tandem run configs/quickstart.yaml run.steps=20 trainer.learning_rate=1e-5\n"
                 "  tandem run configs/quickstart.yaml --resume --run-dir runs/mine");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
