// report.md: an evaluation for a pull request
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "eval/behaviour.h"
#include "eval/outcome_files.h"
#include "rollout/agent/transcript.h"

namespace tandem::eval {
namespace {

constexpr size_t kShownTasks = 200, kShownRegressions = 30, kShownFlags = 50;

// Text of others as a cell of a table.
std::string cell(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    if (c == '|' || c == '<' || c == '`' || c == '[' || c == '*' || c == '_' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return text.size() > kLongest ? out + " …" : out;
}

std::string share(const std::optional<double>& value) { return value ? fmt::format("{:.1f} %", *value * 100) : "–"; }
std::string seconds(const std::optional<double>& value) { return value ? seconds_text(*value) : "–"; }

std::string headline(const Verdict& v) {
  switch (v.code) {
    case kDone:
      return "passed";
    case kIncomplete:
      return "incomplete: too many samples have no verdict";
    default:
      return "failed";
  }
}

void comparison_lines(const char* title, const NightComparison& c, std::string& out) {
  out += fmt::format("\n**{}** ({}): {}. McNemar: {} samples lost, {} won, p = {:.3g}.\n", title, cell(c.directory),
                     verdict_of(c), c.pairs.lost, c.pairs.won, c.pairs.p_value);
  if (!c.same_config) out += "\nIt has other samples, temperature, seed or limits.\n";
  if (!c.flaky.empty()) {
    out += fmt::format("\nFlaky by their history, and counted half: {}.\n", [&] {
      std::vector<std::string> names;
      for (const auto& name : c.flaky) names.push_back(cell(name));
      return join(names, ", ");
    }());
  }
  if (!c.other_tasks.empty()) {
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(c.other_tasks.size(), 10); ++i) names.push_back(cell(c.other_tasks[i]));
    out += fmt::format("\n{} tasks were compared. Not compared: {}{}.\n", c.difference ? c.difference->tasks : 0,
                       join(names, ", "), c.other_tasks.size() > 10 ? ", …" : "");
  }
}

// How the work differs, as a table.
std::string work_table(const char* than, const WorkComparison& work) {
  const auto rows = work_rows(work);
  const bool none = std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.tasks.empty(); });
  if (none) return fmt::format("\nWork beside {}: nothing to compare.\n", than);
  std::string out = fmt::format(
      "\nWork beside {}, averages over tasks:\n\n| samples | figure | before | now | change | {:g} % interval | tasks "
      "| "
      "|\n|---|---|---:|---:|---:|---:|---:|---|\n",
      than, work.confidence * 100);
  for (const auto& row : rows) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.samples, row.figure, row.before, row.after,
                       row.change, row.interval, row.tasks, row.verdict);
  }
  return out;
}

}  // namespace

std::string report_markdown(const Verdict& v) {
  const auto& s = v.summary;
  std::string out = fmt::format("# {}: {}\n\n", cell(v.night.suite), headline(v));
  if (s.pass_rate) {
    out += fmt::format("**{:.1f} %** of {} samples passed (95 % interval {:.1f} to {:.1f} %), {} task{}.\n",
                       s.pass_rate->value * 100, s.verdicts, s.pass_rate->low * 100, s.pass_rate->high * 100,
                       v.night.tasks.size(), v.night.tasks.size() == 1 ? "" : "s");
  } else {
    out += fmt::format("No sample of {} has a verdict.\n", s.wanted);
  }
  if (const auto others = other_models_of(v.night); !others.empty())
    out += fmt::format("\n**Note:** {}.\n", cell(others));
  if (v.against) comparison_lines("Against the night before", *v.against, out);
  if (v.blessed) comparison_lines("Against the blessed one", *v.blessed, out);

  out += "\n| gate | | value | limit | |\n|---|---|---:|---:|---|\n";
  for (const auto& gate : v.gates) {
    out += fmt::format("| {} | {} | {} | {:g} | {} |\n", gate.name, gate.passed ? "passed" : "**failed**",
                       gate.value ? fmt::format("{:.4g}", *gate.value) : "–", gate.limit, cell(gate.says));
  }
  if (v.against && !v.against->regressed.empty()) {
    out += fmt::format("\n{} tasks fell:", v.against->regressed.size());
    size_t shown = 0;
    for (const auto& name : v.against->regressed) {
      if (++shown > kShownRegressions) break;
      out += fmt::format("{} {}", shown > 1 ? "," : "", cell(name));
    }
    out += v.against->regressed.size() > kShownRegressions ? ", …\n" : ".\n";
  }
  out += "\n| | |\n|---|---|\n";
  std::vector<std::string> pass_at, outcomes;
  for (const auto& [k, value] : s.pass_at) pass_at.push_back(fmt::format("pass@{} {:.1f} %", k, value * 100));
  for (const auto& [name, count] : s.outcomes) {
    if (count > 0) outcomes.push_back(fmt::format("{} {}", count, name));
  }
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("| {} | {} |\n", name, value);
  };
  row("pass@k", join(pass_at, ", "));
  row("outcomes", join(outcomes, ", "));
  row("seconds to result", fmt::format("p50 {}, p95 {}", seconds(s.seconds_p50), seconds(s.seconds_p95)));
  row("seconds of samples for a passed one", seconds(s.seconds_of_pass));
  row("tokens", fmt::format("{} of prompts, {} sampled", s.prompt_tokens, s.completion_tokens));
  row("tasks solved", fmt::format("{} of {}", s.solved, v.night.tasks.size()));
  row("for a solved task", solved_task_text(s));
  row("cost of a passed sample", s.cost_of_pass ? fmt::format("{:.6g}", *s.cost_of_pass) : "–");
  row("behaviour", behaviour_text(s.behaviour));
  row("changes made, in the median", work_text(s.diffs, s.diffs_of_passed));
  row("samples that look like cheats", std::to_string(s.flagged));
  row("model", fmt::format("{} ({})", cell(v.night.model), v.night.model_digest.substr(0, 12)));
  row("tasks, config, profile, version",
      fmt::format("{}, {}, {}, {}", v.night.tasks_digest.substr(0, 12), v.night.config_digest.substr(0, 12),
                  v.night.profile.substr(0, 12), v.night.version));
  row("began", rollout::iso_time(v.night.started));
  if (v.against) out += work_table("the night before", v.against->work);
  if (v.blessed) out += work_table("the blessed one", v.blessed->work);

  if (s.flagged > 0) {
    out += "\nThese look like cheats; read their transcripts:\n\n";
    size_t named = 0;
    for (const auto& task : v.night.tasks) {
      for (const auto& sample : task.samples) {
        for (const auto& flag : sample.flags) {
          if (++named <= kShownFlags)
            out += fmt::format("- {}, sample {}: {}\n", cell(task.task), sample.sample, cell(flag));
        }
      }
    }
    if (named > kShownFlags) out += fmt::format("- … and {} more\n", named - kShownFlags);
  }
  out += "\n| task | passed | samples | why not |\n|---|---:|---:|---|\n";
  size_t shown = 0;
  for (const auto& task : v.night.tasks) {
    if (++shown > kShownTasks) break;
    const auto failed =
        std::find_if(task.samples.begin(), task.samples.end(), [](const auto& x) { return !x.passed(); });
    out += fmt::format("| {} | {} | {} | {} |\n", cell(task.task), share(task.rate()), task.samples.size(),
                       failed == task.samples.end() ? "" : cell(failed->why));
  }
  if (v.night.tasks.size() > kShownTasks)
    out += fmt::format("\n… and {} more tasks, in results.json.\n", v.night.tasks.size() - kShownTasks);
  return out;
}

}  // namespace tandem::eval
