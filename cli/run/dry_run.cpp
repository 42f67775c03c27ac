#include "cli/run/dry_run.h"

#include <fmt/format.h>

#include "base/json_line.h"
#include "base/text.h"
#include "cli/run/run_view.h"
#include "cli/run/teacher_probe.h"
#include "run/packages.h"
#include "run/reward_probe.h"

namespace tandem::cli {

namespace {

// What the teacher says, or {"problem"} where it does not answer now. Null: there is none to ask.
Result<Json> teacher_now(const DryRun& plan) {
  auto tried = probe_teacher(plan.config, plan.model);
  if (tried) return tried;
  const Status& failed = tried.error();
  if (failed.code() == Code::kUnavailable || failed.code() == Code::kDeadline)
    return Json{{"problem", failed.message()}};
  return fail(Status(failed).at("algorithm.teacher.url"));
}

}  // namespace

Status print_dry_run(const DryRun& plan, bool json) {
  const Json tried = TRY(run::probe_rewards(plan.config));
  const Json packages = TRY(run::probe_packages(plan.config));
  const Json teacher = TRY(teacher_now(plan));
  if (json) {
    fmt::print("{}\n", dump_json_line(Json{{"config", plan.schema.resolved()},
                                           {"memory", plan.memory},
                                           {"memory_here",
                                            {{"needed", plan.memory_needed.all},
                                             {"free", plan.memory_here.free},
                                             {"limit", plan.memory_here.limit},
                                             {"of", plan.memory_here.of},
                                             {"warning", plan.memory_lack}}},
                                           {"disk", plan.growth ? to_json(*plan.growth) : Json()},
                                           {"packages", packages},
                                           {"teacher", teacher},
                                           {"reward_tried", tried}}));
  } else {
    print_plan(plan.config, plan.topology, plan.schema, plan.memory, plan.tasks);
    if (plan.memory_needed.all > 0)
      fmt::print("memory    here: {} of all processes on its CPUs; {} free of {} ({})\n",
                 format_bytes(plan.memory_needed.all), format_bytes(plan.memory_here.free),
                 format_bytes(plan.memory_here.limit), plan.memory_here.of);
    for (const auto& line : plan.growth ? describe(*plan.growth, plan.config) : std::vector<std::string>())
      fmt::print("disk      {}\n", line);
    if (const auto& place = plan.config.trainer.weight_store.place; !place.empty())
      fmt::print("weights   {}: written, read and removed there\n", place);
    for (const auto& one : packages) {
      const auto problem = one["problem"].get<std::string>();
      fmt::print("packages  {}: {}\n", one["registry"].get<std::string>(), problem.empty() ? "answers" : problem);
    }
    if (teacher.is_object() && teacher.contains("problem"))
      fmt::print("teacher   does not answer now, so nothing of it was checked: {}\n",
                 teacher["problem"].get<std::string>());
    else if (teacher.is_object())
      fmt::print("teacher   {}\n", describe_teacher(plan.config, teacher));
    if (!tried.is_null()) {
      fmt::print("tried     the rewards, on a sample episode: {} in {:.2f} s\n", dump_json(tried["terms"]),
                 tried["seconds"].get<double>());
    }
  }
  return {};
}

}  // namespace tandem::cli
