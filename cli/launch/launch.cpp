// `tandem launch`: runs as jobs of a scheduler.
#include <fmt/format.h>
#include <unistd.h>

#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/launch/local.h"
#include "cli/launch/prepare.h"

namespace tandem::cli {
namespace {

// "-" is stdout.
Result<int> write_rendered(const LaunchOptions& options, const std::string& text) {
  if (options.render == "-") {
    fmt::print("{}", text);
    return kDone;
  }
  TRY(write_file(options.render, text));
  if (options.json)
    fmt::print("{}\n", dump_json_line(Json{{"on", options.on}, {"file", options.render}}));
  else
    fmt::print("{}\n", options.render);
  return kDone;
}

Result<int> announce_job(const LaunchOptions& options, const std::vector<std::string>& jobs, const launch::Job& job) {
  if (!options.json) {
    for (const std::string& id : jobs) fmt::print("{}\n", id);
    fmt::print(stderr, "the run directory is {}\n", job.run_dir.string());
    return kDone;
  }
  Json runs = Json::array();
  for (const auto& variant : job.variants) runs.push_back(job.run_dir_of(variant).string());
  fmt::print("{}\n", dump_json_line(Json{{"on", options.on}, {"jobs", jobs}, {"runs", runs}}));
  return kDone;
}

Result<int> launch_on_slurm(const LaunchOptions& options, const launch::Job& job) {
  launch::SlurmOptions slurm = options.slurm;
  slurm.extra = options.extra;
  const std::string text = TRY(launch::render_slurm(job, slurm));
  if (!options.render.empty()) return write_rendered(options, text);
  const std::string sbatch = TRY(program_of(Scheduler::kSlurm));
  const fs::path file = job.run_dir / "launch.sbatch";
  TRY(make_directories(job.run_dir));
  TRY(write_file(file, text));
  const std::string printed = TRY(hand_over({sbatch, "--parsable", file.string()}));
  return announce_job(options, {TRY(launch::job_of_sbatch(printed))}, job);
}

// A file that goes when it has been read.
Result<std::vector<std::string>> create_on_kubernetes(const std::string& text) {
  const std::string kubectl = TRY(program_of(Scheduler::kKubernetes));
  std::string name = (fs::temp_directory_path() / "tandem-launch-XXXXXX").string();
  const FileDescriptor file(::mkstemp(name.data()));
  if (!file) return fail(Status::from_errno(name, errno));
  Result<std::string> printed = fail(Status::internal("not handed over"));
  if (Status written = write_all(file.get(), text, name); written.ok())
    printed = hand_over({kubectl, "create", "-o", "name", "-f", name});
  else
    printed = fail(std::move(written));
  std::error_code ignored;
  fs::remove(name, ignored);
  std::vector<std::string> created;
  const std::string lines = TRY(std::move(printed));
  for (const auto line : split_lines(lines)) {
    if (!trim(line).empty()) created.emplace_back(trim(line));
  }
  return created;
}

Result<int> launch_on_kubernetes(const LaunchOptions& options, const launch::Job& job) {
  const std::string text = TRY(launch::render_kubernetes(job, TRY(config_text(options)), options.kubernetes));
  if (!options.render.empty()) return write_rendered(options, text);
  return announce_job(options, TRY(create_on_kubernetes(text)), job);
}

Result<int> launch_nightly(const LaunchOptions& options) {
  const NightlyJob job = TRY(prepare_nightly(options));
  const std::string text = TRY(launch::render_kubernetes_nightly(job.nightly, job.suite, options.kubernetes));
  if (!options.render.empty()) return write_rendered(options, text);
  const auto created = TRY(create_on_kubernetes(text));
  if (options.json)
    fmt::print("{}\n",
               dump_json_line(Json{{"on", options.on}, {"jobs", created}, {"nights", job.nightly.nights.string()}}));
  else
    for (const std::string& name : created) fmt::print("{}\n", name);
  return kDone;
}

Result<int> launch_on_ray(const LaunchOptions& options, const launch::Job& job) {
  launch::RayOptions ray = options.ray;
  ray.extra = options.extra;
  if (!options.render.empty()) return write_rendered(options, TRY(launch::render_ray(job, ray)));
  const std::string program = TRY(program_of(Scheduler::kRay));
  std::vector<std::string> jobs;
  for (const auto& submission : TRY(launch::ray_submissions(job, ray))) {
    std::vector<std::string> words = {program};
    words.insert(words.end(), submission.words.begin(), submission.words.end());
    TRY(hand_over(words));
    jobs.push_back(submission.id);
  }
  return announce_job(options, jobs, job);
}

Result<int> launch_runs(LaunchOptions options) {
  const Scheduler scheduler = TRY(scheduler_named(options.on));
  TRY(check_options(options, scheduler));
  // A file can be looked at before there is an image.
  if (scheduler == Scheduler::kKubernetes && options.kubernetes.image.empty() && !options.render.empty()) {
    options.kubernetes.image = fmt::format("tandem:{}", TANDEM_VERSION);
    fmt::print(stderr, "no --image: the file names {}, which packaging/Dockerfile makes\n", options.kubernetes.image);
  }
  if (options.of == "eval") return launch_nightly(options);
  const launch::Job job = TRY(prepare_job(options, scheduler));
  switch (scheduler) {
    case Scheduler::kSlurm:
      return launch_on_slurm(options, job);
    case Scheduler::kKubernetes:
      return launch_on_kubernetes(options, job);
    case Scheduler::kRay:
      return launch_on_ray(options, job);
    case Scheduler::kLocal:
      return run_here(job, options.json);
  }
  return fail(Status::internal("a scheduler that nobody serves"));
}

void add_scheduler_options(CLI::App& command, LaunchOptions& options) {
  constexpr const char* kSlurm = "Slurm";
  command.add_option("--time", options.slurm.time, "Time limit, as sbatch takes it: 8:00:00")->group(kSlurm);
  command.add_option("--partition", options.slurm.partition, "Partition")->group(kSlurm);
  command.add_option("--account", options.slurm.account, "Account")->group(kSlurm);
  command.add_option("--nodes", options.slurm.nodes, "Machines of a run, each with a host for rollouts (tandem host)")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(kSlurm);
  command.add_option("--at-once", options.slurm.at_once, "Runs of an array at once (default: all)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(kSlurm);
  command.add_option("--extra", options.extra, "Another option of sbatch, or of ray job submit: --extra=--qos=high")
      ->allow_extra_args(false)
      ->group("Slurm and Ray");
  constexpr const char* kKubernetes = "Kubernetes";
  command.add_option("--image", options.kubernetes.image, "Image that has tandem (packaging/Dockerfile)")
      ->group(kKubernetes);
  command.add_option("--namespace", options.kubernetes.name_space, "Namespace")->group(kKubernetes);
  command.add_option("--queue", options.kubernetes.queue, "Queue of Kueue")->group(kKubernetes);
  command
      .add_option("--claim", options.kubernetes.claim,
                  "Existing volume claim with models and runs (default: a new one)")
      ->group(kKubernetes);
  command.add_option("--storage", options.kubernetes.storage_gb, "Size of a new volume claim in GiB")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(kKubernetes);
  command.add_option("--of", options.of, "eval: the config is a suite of `tandem eval`")
      ->check(CLI::IsMember({"run", "eval"}))
      ->group(kKubernetes);
  command.add_option("--schedule", options.schedule, "Schedule of the evaluation in cron's format, UTC: '30 2 * * *'")
      ->group(kKubernetes);
  command.add_option("--nights", options.nights, "Folder on the volume that gets a folder a night")
      ->capture_default_str()
      ->group(kKubernetes);
  constexpr const char* kRay = "Ray";
  command.add_option("--address", options.ray.address, "Of the cluster: http://HOST:8265 (default: RAY_ADDRESS)")
      ->group(kRay);
  command.add_option("--runtime-env", options.ray.runtime_env, "YAML file of Ray's runtime environment")
      ->check(CLI::ExistingFile)
      ->group(kRay);
}

}  // namespace

Action add_launch(CLI::App& command) {
  const auto options = std::make_shared<LaunchOptions>();
  command.add_option("config", options->config, "YAML file of a run")->required()->check(CLI::ExistingFile);
  command.add_option("overrides", options->overrides, "key=value, over the file's");
  command.add_option("--on", options->on, "slurm, kubernetes, ray, or local: this machine")->required();
  command.add_option("--render", options->render, "Only write the scheduler's input to this file (-: stdout)");
  command.add_option("--run-dir", options->run_dir,
                     "Folder of the run, or of the runs (default: a new one below runs/)");
  command.add_option("--seeds", options->seeds, "A run for each seed from A to B: A-B");
  command.add_option("--sweep", options->sweeps, "A run for each value: KEY=VALUE,VALUE..; several make a product")
      ->allow_extra_args(false);
  command.add_option("--cores", options->cores, "Cores of a run (default: what the config says of threads, or 8)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--memory", options->memory_gb,
                  "Memory of a run in GiB (default: the estimate of `tandem run --dry-run`, and room for tools)")
      ->check(CLI::Range(0.01, 1e6));
  command
      .add_option("--restarts", options->restarts,
                  "Times that a run is started again after it was interrupted; Kubernetes does not count them")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command.add_option("--program", options->program, "The tandem binary where the run is started (default: this one)");
  command.add_flag("--json", options->json, "Print {on, jobs, runs}");
  add_scheduler_options(command, *options);
  command.footer(
      "Examples:\n"
      "  tandem launch configs/quickstart.yaml --on slurm --time 8:00:00\n"
      "  tandem launch configs/quickstart.yaml --on slurm --seeds 1-4 --sweep trainer.learning_rate=1e-5,3e-5 --render "
      "sweep.sbatch\n"
      "  tandem launch configs/quickstart.yaml --on kubernetes --image registry.example/tandem:1 --memory 16 --render "
      "run.yaml\n"
      "  tandem launch suite.yaml --of eval --on kubernetes --schedule '30 2 * * *' --image registry.example/tandem:1 "
      "--claim lab\n"
      "  tandem launch configs/tiny.yaml --on ray --address http://127.0.0.1:8265\n"
      "  tandem launch configs/tiny.yaml --on local");
  return [options] { return launch_runs(*options); };
}

}  // namespace tandem::cli
