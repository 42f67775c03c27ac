#include "cli/launch/scheduler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/process.h"

namespace tandem::cli {
namespace {

constexpr double kPatienceSeconds = 120;
constexpr size_t kMostLines = 5;

struct SchedulerName {
  std::string_view name;
  Scheduler scheduler;
  std::string_view program, install;
};
constexpr std::array kSchedulers = {
    SchedulerName{"slurm", Scheduler::kSlurm, "sbatch",
                  "apt-get install slurm-client, on a host that Slurm's administrator lets submit jobs"},
    SchedulerName{"kubernetes", Scheduler::kKubernetes, "kubectl",
                  "apt-get install kubernetes-client, and give it the cluster's config (KUBECONFIG)"},
    SchedulerName{"ray", Scheduler::kRay, "ray",
                  "pip install 'ray[default]', and RAY_ADDRESS or --address names the cluster"},
    SchedulerName{"local", Scheduler::kLocal, "", ""},
};

}  // namespace

Result<Scheduler> scheduler_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const auto& each : kSchedulers) {
    if (each.name == name) return each.scheduler;
    names.push_back(each.name);
  }
  return fail(Status::invalid(fmt::format("--on \"{}\" is not a scheduler{}", name, did_you_mean(name, names))));
}

Result<std::string> program_of(Scheduler scheduler) {
  for (const auto& each : kSchedulers) {
    if (each.scheduler != scheduler) continue;
    const char* const path = ::getenv("PATH");
    for (const auto folder : split(std::string_view(path != nullptr ? path : "/usr/bin:/bin"), ':')) {
      const std::string program = fmt::format("{}/{}", folder, each.program);
      if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) return program;
    }
    return fail(
        Status::unfit(fmt::format("{} is not in PATH, and --on {} hands jobs over by it", each.program, each.name))
            .hint(fmt::format("{}; --render FILE needs no program", each.install)));
  }
  return fail(Status::internal("a scheduler without a name"));
}

Result<std::string> hand_over(const std::vector<std::string>& argv) {
  envs::ProcessSpec spec{
      .argv = argv, .directory = fs::current_path(), .time_limit_s = kPatienceSeconds, .errors_apart = true};
  for (char** variable = environ; *variable != nullptr; ++variable) spec.environment.emplace_back(*variable);
  const auto ended = TRY(envs::run_process(spec));
  if (ended.timed_out)
    return fail(Status::deadline(fmt::format("{} did not answer within {:.0f} s", argv[0], kPatienceSeconds)));
  if (ended.exit_code == 0) return ended.output;
  std::string_view said = trim(trim(ended.errors).empty() ? ended.output : ended.errors);
  if (split(said, '\n').size() > kMostLines) said = split(said, '\n').back();  // of a traceback of Python the reason
  return fail(Status::unavailable(fmt::format("{} did not take the job: {}", argv[0], said)));
}

}  // namespace tandem::cli
