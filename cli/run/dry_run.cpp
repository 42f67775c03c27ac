#include "cli/run/dry_run.h"

#include <fmt/format.h>

#include "base/json_line.h"
#include "base/text.h"
#include "cli/run/run_view.h"
#include "run/packages.h"
#include "run/reward_probe.h"

namespace tandem::cli {

Status print_dry_run(const DryRun& plan, bool json) {
  const Json tried = TRY(run::probe_rewards(plan.config));
  const Json packages = TRY(run::probe_packages(plan.config));
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
                                           {"reward_tried", tried}}));
  } else {
    print_plan(plan.config, plan.topology, plan.schema, plan.memory, plan.tasks);
    if (plan.memory_needed.all > 0)
      fmt::print("memory    here: {} of all processes on its CPUs; {} free of {} ({})\n",
                 format_bytes(plan.memory_needed.all), format_bytes(plan.memory_here.free),
                 format_bytes(plan.memory_here.limit), plan.memory_here.of);
    for (const auto& line : plan.growth ? describe(*plan.growth, plan.config) : std::vector<std::string>())
      fmt::print("disk      {}\n", line);
    for (const auto& one : packages) {
      const auto problem = one["problem"].get<std::string>();
      fmt::print("packages  {}: {}\n", one["registry"].get<std::string>(), problem.empty() ? "answers" : problem);
    }
    if (!tried.is_null()) {
      fmt::print("tried     the rewards, on a sample episode: {} in {:.2f} s\n", dump_json(tried["terms"]),
                 tried["seconds"].get<double>());
    }
  }
  return {};
}

}  // namespace tandem::cli
