// report.html: an evaluation as one page, with its nights and the transcripts of what failed
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "dashboard/html.h"
#include "eval/behaviour.h"
#include "eval/outcome_files.h"
#include "rollout/agent/transcript.h"

namespace tandem::eval {
namespace {

using dashboard::escape;

constexpr size_t kShownNights = 30, kShownTranscripts = 60, kLongestPassage = 6000;

const Json& member(const Json& object, std::string_view key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNone : *found;
}

std::string passage(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.is_null() ? "" : dump_json(value);
  if (text.size() > kLongestPassage) text = text.substr(0, kLongestPassage) + "\n[…]";
  return text.empty() ? "" : fmt::format("<pre>{}</pre>\n", escape(text));
}

std::string percent_of(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string top(const Verdict& v) {
  const auto& s = v.summary;
  std::string out = fmt::format(
      "<h1>{}</h1>\n<p class=\"soft\">{} · {} · {} · tasks {} · config {} · profile {} · tandem {}</p>\n",
      escape(v.night.suite), rollout::iso_time(v.night.started), escape(v.night.model),
      escape(v.night.model_digest.substr(0, 12)), escape(v.night.tasks_digest.substr(0, 12)),
      escape(v.night.config_digest.substr(0, 12)), escape(v.night.profile.substr(0, 12)), escape(v.night.version));
  out += "<div class=\"headline\">\n<div class=\"result\">pass rate<div class=\"big\">";
  out += s.pass_rate ? percent_of(s.pass_rate->value) : "no verdict";
  if (s.pass_rate)
    out += fmt::format(" <small>{} to {}</small>", percent_of(s.pass_rate->low), percent_of(s.pass_rate->high));
  out += fmt::format("</div>{} of {} samples with a verdict, {} tasks</div>\n", s.verdicts, s.wanted,
                     v.night.tasks.size());
  const auto card = [&](const char* title, const NightComparison& c) {
    const double points = c.difference ? c.difference->points * 100 : 0;
    out += fmt::format("<div class=\"result\">{} <small>{}</small><div class=\"big {}\">{:+.1f} points</div>{}</div>\n",
                       title, escape(c.directory),
                       c.is_regression() ? "down"
                       : points > 0      ? "up"
                                         : "",
                       points, escape(verdict_of(c)));
  };
  if (v.against) card("against the night before", *v.against);
  if (v.blessed) card("against the blessed one", *v.blessed);
  out += "</div>\n";
  return out;
}

std::string gates_table(const Verdict& v) {
  std::string out = "<h2>Gates</h2>\n<div class=\"scroll\"><table><tr><th>gate<th>value<th>limit<th>\n";
  for (const auto& gate : v.gates) {
    out += fmt::format("<tr><td>{} <span class=\"{}\">{}</span><td>{}<td>{:g}<td class=\"text\">{}\n",
                       escape(gate.name), gate.passed ? "up" : "down", gate.passed ? "passed" : "failed",
                       gate.value ? fmt::format("{:.4g}", *gate.value) : "–", gate.limit, escape(gate.says));
  }
  return out + "</table></div>\n";
}

std::string work_section(const char* than, const WorkComparison& work) {
  std::string out = fmt::format("<h2>Work beside {}</h2>\n", than);
  const auto rows = work_rows(work);
  if (std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.tasks.empty(); }))
    return out + "<p class=\"none\">nothing to compare</p>\n";
  out += fmt::format(
      "<div class=\"scroll\"><table><tr><th>figure<th>samples<th>before<th>now<th>change<th>{:g} % "
      "interval<th>tasks<th>\n",
      work.confidence * 100);
  for (const auto& row : rows) {
    out += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"text\">{}\n", row.figure, row.samples,
                       row.before, row.after, row.change, row.interval, row.tasks, row.verdict);
  }
  return out + "</table></div>\n";
}

std::string work_tables(const Verdict& v) {
  return (v.against ? work_section("the night before", v.against->work) : "") +
         (v.blessed ? work_section("the blessed one", v.blessed->work) : "");
}

std::string nights_chart(const Verdict& v) {
  if (v.history.size() < 2) return "";
  dashboard::Series rate{.name = "pass rate", .points = {}, .colour = 0};
  dashboard::Series low{.name = "95 % interval", .points = {}, .colour = 0, .faint = true}, high = low;
  high.name = "";
  const size_t from = v.history.size() > kShownNights ? v.history.size() - kShownNights : 0;
  for (size_t i = from; i < v.history.size(); ++i) {
    const auto x = static_cast<double>(i + 1);
    rate.points.emplace_back(x, v.history[i].pass_rate);
    low.points.emplace_back(x, v.history[i].low);
    high.points.emplace_back(x, v.history[i].high);
  }
  return "<h2>Night after night</h2>\n" +
         dashboard::line_chart({.title = "pass rate", .series = {rate, low, high}, .levels = {}, .percent = true});
}

// Regressions first, then by the rate of this night.
std::vector<const TaskNight*> tasks_in_order(const Verdict& v) {
  std::map<std::string, size_t> fell;
  if (v.against) {
    for (const auto& name : v.against->regressed) fell.emplace(name, fell.size());
  }
  std::vector<const TaskNight*> tasks;
  for (const auto& task : v.night.tasks) tasks.push_back(&task);
  const auto place = [&](const TaskNight* task) {
    const auto found = fell.find(task->task);
    return std::tuple(found == fell.end() ? fell.size() : found->second, task->rate().value_or(-1), task->task);
  };
  std::sort(tasks.begin(), tasks.end(), [&](const auto* a, const auto* b) { return place(a) < place(b); });
  return tasks;
}

std::string task_matrix(const Verdict& v) {
  constexpr size_t kColumns = 14;
  const size_t from = v.history.size() > kColumns ? v.history.size() - kColumns : 0;
  const auto flaky = flaky_tasks(v.history);
  std::string out = "<h2>Tasks, night by night</h2>\n<div class=\"scroll\"><table><tr><th>task";
  for (size_t i = from; i < v.history.size(); ++i) out += fmt::format("<th>{}", escape(v.history[i].night));
  out += "\n";
  for (const auto* task : tasks_in_order(v)) {
    const bool fell = v.against && std::find(v.against->regressed.begin(), v.against->regressed.end(), task->task) !=
                                       v.against->regressed.end();
    out += fmt::format("<tr><td>{}{}{}", escape(task->task), fell ? " <span class=\"down\">fell</span>" : "",
                       flaky.contains(task->task) ? " <small>flaky</small>" : "");
    for (size_t i = from; i < v.history.size(); ++i) {
      const auto found = v.history[i].tasks.find(task->task);
      out += found == v.history[i].tasks.end() ? "<td>"
             : found->second.second == 0       ? "<td>–"
                                               : fmt::format("<td>{}/{}", found->second.first, found->second.second);
    }
    out += "\n";
  }
  return out + "</table></div>\n";
}

std::string figures(const NightSummary& s, size_t tasks) {
  std::string out = "<h2>Figures</h2>\n<div class=\"scroll\"><table>\n";
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("<tr><td>{}<td class=\"text\">{}\n", name, value);
  };
  std::string pass_at, outcomes;
  for (const auto& [k, share] : s.pass_at) pass_at += fmt::format("pass@{} {} ", k, percent_of(share));
  for (const auto& [name, count] : s.outcomes) outcomes += count > 0 ? fmt::format("{} {} ", count, name) : "";
  row("pass@k", pass_at);
  row("outcomes", outcomes);
  row("seconds to result",
      fmt::format("p50 {}, p95 {}", seconds_text(s.seconds_p50.value_or(0)), seconds_text(s.seconds_p95.value_or(0))));
  row("for a passed sample", fmt::format("{} of samples, cost {:.6g}", seconds_text(s.seconds_of_pass.value_or(0)),
                                         s.cost_of_pass.value_or(0)));
  row("tokens", fmt::format("{} of prompts, {} sampled", s.prompt_tokens, s.completion_tokens));
  row("tasks solved", fmt::format("{} of {}", s.solved, tasks));
  row("for a solved task", solved_task_text(s));
  row("samples that look like cheats", std::to_string(s.flagged));
  row("behaviour", behaviour_text(s.behaviour));
  row("changes made, in the median", work_text(s.diffs, s.diffs_of_passed));
  return out + "</table></div>\n";
}

std::string steps_of(const Json& transcript) {
  std::string out;
  const Json& steps = member(transcript, "steps");
  if (!steps.is_array()) return "<p class=\"none\">no transcript</p>\n";
  for (const Json& step : steps) {
    const Json& source = member(step, "source");
    if (source == "system") continue;
    out += fmt::format("<h3>{}</h3>\n", escape(source.is_string() ? source.get<std::string>() : ""));
    out += passage(member(step, "reasoning_content")) + passage(member(step, "message"));
    const Json& calls = member(step, "tool_calls");
    const Json& results = member(member(step, "observation"), "results");
    for (size_t i = 0; calls.is_array() && i < calls.size(); ++i) {
      const Json& name = member(calls[i], "function_name");
      out += fmt::format("<p><code>{}</code></p>\n", escape(name.is_string() ? name.get<std::string>() : ""));
      out += passage(member(calls[i], "arguments"));
      if (results.is_array() && i < results.size()) out += passage(member(results[i], "content"));
    }
  }
  return out;
}

std::string failures(const Verdict& v, const std::function<Json(const SampleResult&)>& transcript) {
  std::string out = "<h2>Samples that did not pass, or were flagged</h2>\n";
  size_t shown = 0, left = 0;
  for (const auto* task : tasks_in_order(v)) {
    for (const auto& sample : task->samples) {
      if (sample.passed() && sample.flags.empty()) continue;
      if (shown >= kShownTranscripts) {
        ++left;
        continue;
      }
      ++shown;
      out += fmt::format("<details id=\"s{}\"><summary>{} · sample {} · {} · {}</summary><div>\n", shown,
                         escape(task->task), sample.sample, rollout::to_string(sample.outcome),
                         escape(sample.why.substr(0, 200)));
      for (const auto& flag : sample.flags) out += fmt::format("<p class=\"down\">{}</p>\n", escape(flag));
      out += steps_of(transcript(sample)) + "</div></details>\n";
    }
  }
  if (shown == 0) return "";
  if (left > 0) out += fmt::format("<p class=\"soft\">{} more, in transcripts/ beside this page</p>\n", left);
  return out;
}

}  // namespace

std::string report_page(const Verdict& v, const std::function<Json(const SampleResult&)>& transcript) {
  const auto body = top(v) + gates_table(v) + nights_chart(v) + task_matrix(v) +
                    figures(v.summary, v.night.tasks.size()) + work_tables(v) + failures(v, transcript);
  return dashboard::page(v.night.suite + " " + rollout::iso_time(v.night.started).substr(0, 10), body,
                         dashboard::PageUpdates::kNever);
}

}  // namespace tandem::eval
