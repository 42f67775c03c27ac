#include "cli/run/run_result.h"

#include <fmt/format.h>

#include "base/text.h"
#include "dashboard/report.h"
#include "dashboard/run_files.h"
#include "dashboard/summary.h"
#include "dashboard/tensorboard.h"
#include "envs/episodes/profile.h"

namespace tandem::cli {
namespace {

std::string interval(const Json& rate) {
  if (rate.is_null() || rate["pass_rate"].is_null()) return "-";
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * rate["pass_rate"].get<double>(),
                     100 * rate["ci95"][0].get<double>(), 100 * rate["ci95"][1].get<double>());
}

// TensorBoard's files are made from the metrics when the run ends; they are a view, not a record.
void write_tensorboard(const fs::path& run_dir, const Clock& clock) {
  const auto lines = dashboard::read_metrics(run_dir);
  auto file = dashboard::EventFile::create(run_dir / "tb", clock);
  if (!lines || !file) return;
  for (const Json& line : *lines) {
    if (!file->add_line(line).ok()) return;
  }
}

}  // namespace

Result<Json> conclude(const fs::path& run_dir, const run::RunConfig& config, const Clock& clock) {
  const auto run = TRY(dashboard::read_run(run_dir, TRY(run::plan_of(config, run_dir))));
  const Json summary = dashboard::summarise(run);
  TRY(write_file(run_dir / "summary.json", summary.dump(2) + "\n"));
  TRY(dashboard::write_report(run));
  write_tensorboard(run_dir, clock);
  if (fs::exists(run_dir / "export"))
    TRY(write_file(run_dir / "export" / envs::kProfileFile, TRY(read_file(run_dir / envs::kProfileFile, 1 << 20))));
  return summary;
}

void print_result(const fs::path& run_dir, const Json& summary, int steps) {
  const Json& heldout = summary["heldout"];
  fmt::print("\n{} in {}\n", run_dir.string(), format_seconds(summary.value("wall_seconds", 0.0)));
  if (!heldout["before"].is_null() && heldout["before"]["n_tasks"].get<int>() > 0) {
    fmt::print("held-out success   sampled {} -> {}\n                   greedy  {} -> {}\n",
               interval(heldout["before"]), interval(heldout["after"]), interval(heldout["greedy"]["before"]),
               interval(heldout["greedy"]["after"]));
    for (const auto& [name, rate] : heldout["floors"].items())
      fmt::print("  floor {:<14} {:.1f} %\n", name, 100 * rate.get<double>());
  }
  const Json& books = summary["episodes"];
  uint64_t dropped = 0;
  for (const auto& [reason, count] : books["dropped"].items()) dropped += count.get<uint64_t>();
  fmt::print("episodes           {} admitted = {} trained + {} dropped + {} in flight\n",
             books["admitted"].get<uint64_t>(), books["trained"].get<uint64_t>(), dropped,
             books["in_flight"].get<uint64_t>());
  const Json& logprob = summary["logprob"];
  fmt::print("trainer = sampler  max |logprob difference| {} over {} tokens\n", dump_json(logprob["max_abs_diff"]),
             dump_json(logprob["tokens_compared"]));
  fmt::print("report             {}\n", (run_dir / "report.html").string());
  const fs::path exported = run_dir / "export";
  if (!fs::exists(exported)) return;
  const int trained = summary.value("steps", 0);
  if (trained >= steps)
    fmt::print("trained model      {}\n", exported.string());
  else  // it had fewer steps to do then
    fmt::print("trained model      none yet: {} of {} steps; {} is of an earlier end\n", trained, steps,
               exported.string());
}

}  // namespace tandem::cli
