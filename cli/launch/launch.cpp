// `tandem launch`: runs as jobs of a scheduler.
#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "cli/command.h"
#include "cli/launch/local.h"
#include "cli/launch/scheduler.h"
#include "cli/run/run_dir.h"
#include "launch/resources.h"
#include "launch/slurm.h"
#include "model/config.h"
#include "run/checks.h"
#include "run/memory.h"

namespace tandem::cli {
namespace {

struct LaunchOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string on, render, run_dir, seeds, program;
  std::vector<std::string> sweeps;
  int cores = 0, restarts = 100;
  double memory_gb = 0;
  launch::SlurmOptions slurm;
  bool json = false;
};

// Options that some schedulers alone have.
struct Only {
  const char* option;
  std::vector<Scheduler> of;
  bool given;
};

Status check_options(const LaunchOptions& options, Scheduler scheduler) {
  const launch::SlurmOptions& slurm = options.slurm;
  const std::vector<Only> limited = {
      {"--time", {Scheduler::kSlurm}, !slurm.time.empty()},
      {"--partition", {Scheduler::kSlurm}, !slurm.partition.empty()},
      {"--account", {Scheduler::kSlurm}, !slurm.account.empty()},
      {"--at-once", {Scheduler::kSlurm}, slurm.at_once > 0},
      {"--extra", {Scheduler::kSlurm}, !slurm.extra.empty()},
      {"--render", {Scheduler::kSlurm}, !options.render.empty()},
  };
  for (const Only& only : limited) {
    if (only.given && std::find(only.of.begin(), only.of.end(), scheduler) == only.of.end())
      return Status::invalid(fmt::format("{} has no meaning with --on {}", only.option, options.on));
  }
  return {};
}

// Every variant's config is read, so that what is wrong with one is told before any is submitted.
Result<run::RunConfig> read_configs(const LaunchOptions& options, const std::vector<launch::Variant>& variants) {
  for (size_t i = variants.size(); i-- > 0;) {
    run::RunConfig config;
    std::vector<std::string> overrides = options.overrides;
    overrides.insert(overrides.end(), variants[i].overrides.begin(), variants[i].overrides.end());
    TRY(run::schema_of(config).read(options.config, overrides));
    TRY(run::check(config));
    if (i == 0) return config;
  }
  return fail(Status::internal("a job without runs"));
}

Result<launch::Job> make_job(const LaunchOptions& options, Scheduler scheduler) {
  launch::Job job;
  job.variants = TRY(launch::variants_of(options.seeds, options.sweeps));
  const run::RunConfig config = TRY(read_configs(options, job.variants));
  // The largest of a sweep may take more than the first; --cores and --memory are for that.
  Json memory = Json::object();
  if (!run::is_tiny(config.model.path))
    memory = TRY(run::memory_of(config, TRY(model::read_config(config.model.path))));
  job.resources = launch::resources_of(config, memory, options.cores);
  if (options.memory_gb > 0)
    job.resources.memory_bytes = static_cast<uint64_t>(options.memory_gb * (uint64_t{1} << 30));
  job.overrides = options.overrides;
  if (scheduler != Scheduler::kLocal) {
    const auto threads = launch::thread_overrides(config, job.resources.cores);
    job.overrides.insert(job.overrides.end(), threads.begin(), threads.end());
  }
  std::error_code error;
  job.program = options.program.empty() ? fs::read_symlink("/proc/self/exe", error).string() : options.program;
  job.config = fs::absolute(options.config).lexically_normal().string();
  job.working_dir = fs::current_path();
  const std::string stem = fs::path(options.config).stem();
  job.run_dir = fs::absolute(options.run_dir.empty() ? free_run_dir(config.run.dir, stem) : fs::path(options.run_dir))
                    .lexically_normal();
  job.name = launch::plain_name(job.run_dir.filename().string());
  job.most_restarts = options.restarts;
  return job;
}

// "-" is stdout.
Status write_rendered(const LaunchOptions& options, const std::string& text) {
  if (options.render == "-") {
    fmt::print("{}", text);
    return {};
  }
  TRY(write_file(options.render, text));
  if (options.json)
    fmt::print("{}\n", dump_json(Json{{"on", options.on}, {"file", options.render}}));
  else
    fmt::print("{}\n", options.render);
  return {};
}

void announce_job(const LaunchOptions& options, const launch::Job& job, const std::string& id,
                  const std::string& file) {
  if (!options.json) {
    fmt::print("{}\n", id);
    fmt::print(stderr, "job {} of {}; its runs are in {}, and what becomes of them is in job.log there\n", id,
               options.on, job.run_dir.string());
    return;
  }
  Json runs = Json::array();
  for (const auto& variant : job.variants) runs.push_back(job.run_dir_of(variant).string());
  fmt::print("{}\n", dump_json(Json{{"on", options.on}, {"job", id}, {"file", file}, {"runs", runs}}));
}

Result<int> launch_on_slurm(const LaunchOptions& options, const launch::Job& job) {
  const std::string text = TRY(launch::render_slurm(job, options.slurm));
  if (!options.render.empty()) {
    TRY(write_rendered(options, text));
    return kDone;
  }
  const std::string sbatch = TRY(program_of(Scheduler::kSlurm));
  const fs::path file = job.run_dir / "launch.sbatch";
  TRY(make_directories(job.run_dir));
  TRY(write_file(file, text));
  announce_job(options, job, TRY(launch::job_of_sbatch(TRY(hand_over({sbatch, "--parsable", file.string()})))),
               file.string());
  return kDone;
}

Result<int> launch_runs(const LaunchOptions& options) {
  const Scheduler scheduler = TRY(scheduler_named(options.on));
  TRY(check_options(options, scheduler));
  const launch::Job job = TRY(make_job(options, scheduler));
  switch (scheduler) {
    case Scheduler::kSlurm:
      return launch_on_slurm(options, job);
    case Scheduler::kLocal:
      return run_here(job, options.json);
    case Scheduler::kKubernetes:
    case Scheduler::kRay:
      break;
  }
  return fail(Status::invalid(fmt::format("--on {} is not built yet", options.on)));
}

}  // namespace

Action add_launch(CLI::App& command) {
  const auto options = std::make_shared<LaunchOptions>();
  command.add_option("config", options->config, "YAML file of a run")->required()->check(CLI::ExistingFile);
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_option("--on", options->on, "slurm, or local: this machine")->required();
  command.add_option("--render", options->render, "Only write what the scheduler would get to this file (-: stdout)");
  command.add_option("--run-dir", options->run_dir,
                     "Folder of the run, or of the runs (default: a new one below runs/)");
  command.add_option("--seeds", options->seeds, "A run for each seed from A to B: A-B");
  command.add_option("--sweep", options->sweeps, "A run for each value: KEY=VALUE,VALUE..; several make a product");
  command.add_option("--cores", options->cores, "Cores of a run (default: what the config says of threads, or 8)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--memory", options->memory_gb,
                  "Memory of a run in GiB (default: the estimate of `tandem run --dry-run`, and room for tools)")
      ->check(CLI::PositiveNumber);
  command.add_option("--restarts", options->restarts, "Times that a run is started again after it was interrupted")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--program", options->program, "The tandem binary where the run is started (default: this one)");
  constexpr const char* kSlurm = "Slurm";
  command.add_option("--time", options->slurm.time, "Time limit, as sbatch takes it: 8:00:00")->group(kSlurm);
  command.add_option("--partition", options->slurm.partition, "Partition")->group(kSlurm);
  command.add_option("--account", options->slurm.account, "Account")->group(kSlurm);
  command.add_option("--at-once", options->slurm.at_once, "Runs of an array at once (default: all)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(kSlurm);
  command.add_option("--extra", options->slurm.extra, "Another option of sbatch: --extra=--qos=high")->group(kSlurm);
  command.add_flag("--json", options->json, "Print the job as JSON");
  command.footer(
      "Examples:\n"
      "  tandem launch configs/quickstart.yaml --on slurm --time 8:00:00\n"
      "  tandem launch configs/quickstart.yaml --on slurm --seeds 1-4 --sweep trainer.learning_rate=1e-5,3e-5 --render "
      "sweep.sbatch\n"
      "  tandem launch configs/tiny.yaml --on local");
  return [options] { return launch_runs(*options); };
}

}  // namespace tandem::cli
