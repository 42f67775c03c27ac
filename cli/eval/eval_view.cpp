#include "cli/eval/eval_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/json_line.h"
#include "base/text.h"
#include "rollout/agent/transcript.h"

namespace tandem::cli {
namespace {

constexpr size_t kShownNames = 8;

std::string some_of(const std::vector<std::string>& names) {
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShownNames)));
  auto text = join(shown, ", ");
  if (names.size() > kShownNames) text += fmt::format(" and {} more", names.size() - kShownNames);
  return text;
}

}  // namespace

void print_comparison(const char* with, const eval::NightComparison& c) {
  fmt::print("against {} ({}): {}\n", c.directory, with, eval::verdict_of(c));
  if (!c.regressed.empty()) fmt::print("  fell: {}\n", some_of(c.regressed));
  if (!c.improved.empty()) fmt::print("  rose: {}\n", some_of(c.improved));
  if (!c.flaky.empty()) fmt::print("  flaky, counted half: {}\n", some_of(c.flaky));
  if (!c.same_config) fmt::print("  other samples, temperature, seed or limits than there\n");
  if (!c.other_tasks.empty())
    fmt::print("  {} tasks were compared; not compared: {}\n", c.difference ? c.difference->tasks : 0,
               some_of(c.other_tasks));
  for (const auto& line : eval::work_lines(c.work)) fmt::print("  {}\n", line);
}

std::string progress_text(const eval::EvaluationProgress& p) {
  auto text = fmt::format("{} of {} samples", p.done, p.total);
  if (p.verdicts > 0)
    text += fmt::format(", {:.1f} % passed", 100 * static_cast<double>(p.passed) / static_cast<double>(p.verdicts));
  if (p.done > p.verdicts) text += fmt::format(", {} without a verdict", p.done - p.verdicts);
  text += fmt::format(", {} running", p.running);
  if (p.seconds_left && p.done < p.total) text += fmt::format(", about {} left", format_seconds(*p.seconds_left));
  return text;
}

void print_verdict(const eval::Verdict& v, const fs::path& folder, bool json) {
  if (json) return fmt::print("{}\n", dump_json_line(eval::results_json(v)));
  const auto& s = v.summary;
  if (s.pass_rate) {
    fmt::print("{}: {:.1f} % of {} samples passed (95 % interval {:.1f} to {:.1f} %), {} task{}\n", v.night.suite,
               s.pass_rate->value * 100, s.verdicts, s.pass_rate->low * 100, s.pass_rate->high * 100,
               v.night.tasks.size(), v.night.tasks.size() == 1 ? "" : "s");
  } else {
    fmt::print("{}: no sample of {} has a verdict\n", v.night.suite, s.wanted);
  }
  if (s.solved > 0) {
    fmt::print("seconds to result: p50 {}, p95 {}; {} of {} tasks solved, each for {}\n",
               eval::seconds_text(s.seconds_p50.value_or(0)), eval::seconds_text(s.seconds_p95.value_or(0)), s.solved,
               v.night.tasks.size(), eval::solved_task_text(s));
  }
  if (s.diffs.samples() > 0)
    fmt::print("changes made, in the median: {}\n", eval::work_text(s.diffs, s.diffs_of_passed));
  for (const auto& [outcome, count] : s.outcomes) {
    const auto known = rollout::outcome_from(outcome);
    if (count > 0 && known && !rollout::is_of_policy(*known)) fmt::print("  {} {}\n", count, outcome);
  }
  if (const auto others = eval::other_models_of(v.night); !others.empty()) fmt::print("note: {}\n", others);
  if (v.against) print_comparison("the night before", *v.against);
  if (v.blessed) print_comparison("blessed", *v.blessed);
  for (const auto& gate : v.gates) {
    if (!gate.passed) fmt::print("gate {} failed: {} (limit {:g})\n", gate.name, gate.says, gate.limit);
  }
  if (s.flagged > 0) fmt::print("{} samples look like cheats; report.md and report.html name them\n", s.flagged);
  fmt::print("{}/report.html\n", folder.string());
}

void print_history(const std::vector<eval::HistoryLine>& lines) {
  size_t width = 5;
  for (const auto& line : lines) width = std::max(width, std::min<size_t>(line.night.size(), 40));
  fmt::print("{:<{}}  {:<16}  {:>7}  {:>17}  {:>7}  {:>8}  {:>4}  {}\n", "night", width, "began", "passed", "interval",
             "points", "p50", "exit", "model");
  for (const auto& line : lines) {
    fmt::print("{:<{}}  {:<16}  {:>5.1f} %  {:>15}    {:>7}  {:>8}  {:>4}  {}\n", line.night, width,
               rollout::iso_time(line.started).substr(0, 16), line.pass_rate * 100,
               fmt::format("{:.1f} to {:.1f}", line.low * 100, line.high * 100),
               line.points ? fmt::format("{:+.1f}", *line.points * 100) : "", eval::seconds_text(line.seconds_p50),
               line.code, line.model_digest.substr(0, 12));
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].started < lines[i - 1].started) {
      fmt::print("note: the clock was set back between {} and {}; they stand as they were compared\n",
                 lines[i - 1].night, lines[i].night);
    }
  }
  std::vector<std::string> names;
  for (const auto& task : eval::flaky_tasks(lines)) names.push_back(task);
  if (!names.empty()) fmt::print("flaky: {}\n", some_of(names));
}

}  // namespace tandem::cli
