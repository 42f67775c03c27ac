#include "dashboard/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/text.h"
#include "dashboard/behaviour_charts.h"
#include "dashboard/heldout.h"
#include "dashboard/loss_charts.h"
#include "dashboard/summary.h"
#include "dashboard/transcripts.h"
#include "rollout/books/alarms.h"

namespace tandem::dashboard {

namespace {

constexpr size_t kSmoothing = 8;        // steps
constexpr size_t kPassageLimit = 8000;  // bytes of one passage
constexpr int kTasksPerKind = 2;

const Json& at(const Json& object, std::string_view key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNone : *found;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : dump_json(value);
}
std::string percent(const Json& rate) {
  return rate.is_number() ? fmt::format("{:.1f} %", rate.get<double>() * 100) : "–";
}

std::vector<std::pair<double, double>> points_of(const std::vector<Json>& steps, std::string_view key) {
  std::vector<std::pair<double, double>> points;
  for (const Json& line : steps) {
    if (const Json& value = at(line, key); value.is_number())
      points.emplace_back(number_at(line, "step"), value.get<double>());
  }
  return points;
}

// The same of a number of an object of each line.
std::vector<std::pair<double, double>> points_of(const std::vector<Json>& steps, std::string_view object,
                                                 std::string_view key) {
  std::vector<std::pair<double, double>> points;
  for (const Json& line : steps) {
    if (const Json& value = at(at(line, object), key); value.is_number())
      points.emplace_back(number_at(line, "step"), value.get<double>());
  }
  return points;
}

std::vector<Level> floors_of(const Json& summary) {
  std::vector<Level> levels;
  const Json& floors = at(at(summary, "heldout"), "floors");
  if (!floors.is_object()) return levels;
  for (const auto& [name, rate] : floors.items()) {
    if (rate.is_number()) levels.push_back({name, rate.get<double>()});
  }
  for (Level& level : levels) std::replace(level.name.begin(), level.name.end(), '_', ' ');
  return levels;
}

// ---- Sections ----

std::string opening(const RunFiles& run, const Json& summary, PageUpdates updates) {
  std::string out = fmt::format("<h1>{}</h1>\n<p class=\"soft\">", escape(text_of(at(summary, "run_id"))));
  std::vector<std::string> parts;
  if (updates == PageUpdates::kWhileServed)
    parts.push_back("<span class=\"live\">running</span>");
  else if (const Json& end = at(run.status, "end"); end.is_string())
    parts.push_back(escape(end.get<std::string>()));
  else if (const Json& state = at(run.status, "state"); state.is_string())
    parts.push_back(escape(state.get<std::string>()));
  parts.push_back(fmt::format("step {} of {}", run.ledger.steps_trained(), run.ledger.plan().steps));
  if (const Json& wall = at(summary, "wall_seconds"); wall.is_number())
    parts.push_back(format_seconds(wall.get<double>()));
  if (const Json& path = at(at(run.config, "model"), "path"); path.is_string())
    parts.push_back("from " + escape(path.get<std::string>()));
  parts.push_back(fmt::format("seed {}", run.ledger.plan().seed));
  out += join(parts, " · ") + "</p>\n";
  for (const Json& alarm : at(summary, "alarms")) {
    const Json& steps = at(alarm, "steps");
    out += fmt::format(
        "<p class=\"none\">{}</p>\n",
        escape(rollout::alarm_line(
            steps.is_array() && !steps.empty() ? static_cast<uint64_t>(steps.back().get<double>()) : 0, alarm)));
  }
  for (const Json& failure : run.failures) {
    out += fmt::format("<p class=\"none\">{} attempts without a reward: {}</p>\n", text_of(at(failure, "count")),
                       escape(text_of(at(failure, "reason"))));
  }
  for (const auto& loss : run.losses) out += fmt::format("<p class=\"none\">{}</p>\n", escape(loss));
  return out;
}

std::string result_card(std::string_view title, const Json& rates, const std::vector<Level>& floors) {
  const Json& before = at(rates, "before");
  const Json& after = at(rates, "after");
  const Json& gain = at(rates, "gain");
  std::string out = fmt::format("<section class=\"result\"><h3>{}</h3>", title);
  if (before.is_null() && after.is_null()) return out + "<p class=\"none\">not measured yet</p></section>\n";
  out += fmt::format("<div class=\"big\">{} <small>→</small> {}</div>", percent(at(before, "pass_rate")),
                     percent(at(after, "pass_rate")));
  if (gain.is_object()) {
    const double points = number_at(gain, "points") * 100;
    out += fmt::format(
        "<p><span class=\"gain {}\">{:+.1f} points</span> <span class=\"soft\">[{:+.1f}, {:+.1f}] at 95 %, paired by "
        "task</span></p>",
        points >= 0 ? "up" : "down", points, at(gain, "ci95")[0].get<double>() * 100,
        at(gain, "ci95")[1].get<double>() * 100);
  } else {
    out += "<p class=\"soft\">after training: not measured yet</p>";
  }
  std::vector<IntervalRow> rows;
  for (const auto& [name, rate] : {std::pair<const char*, const Json&>{"before", before}, {"after", after}}) {
    if (!rate.is_object()) continue;
    rows.push_back({fmt::format("{} ({} tasks)", name, dump_json(at(rate, "n_tasks"))), number_at(rate, "pass_rate"),
                    at(rate, "ci95")[0].get<double>(), at(rate, "ci95")[1].get<double>(), rows.empty() ? 7 : 0});
  }
  return out + interval_chart(rows, floors) + "</section>\n";
}

std::string headline(const Json& summary) {
  const Json& heldout = at(summary, "heldout");
  const auto floors = floors_of(summary);
  std::string out = "<div class=\"headline\">\n";
  out += result_card("Held-out tasks, sampled at temperature 1", heldout, floors);
  out += result_card("Held-out tasks, greedy", at(heldout, "greedy"), floors);
  out +=
      "</div>\n<p class=\"soft\">Share of held-out tasks met, judged by the files left behind and by hidden tests. "
      "Bars are 95 % intervals by "
      "bootstrap over tasks; dashed lines are scripted players on the same tasks.</p>\n";
  return out;
}

std::string kinds_table(const Json& summary, const RunFiles& run) {
  const Json& kinds = at(at(summary, "heldout"), "kinds");
  std::string out = "<h2>By kind of task</h2>\n";
  const auto& training = run.totals.trained_on;
  if (!kinds.is_object() || (kinds.empty() && training.empty())) return out + "<p class=\"none\">nothing yet</p>\n";
  out +=
      "<div class=\"scroll\"><table><thead><tr><th>kind</th><th>before</th><th>after</th><th>points</th><th>greedy "
      "before</th>"
      "<th>greedy after</th><th>points</th><th>trained on</th></tr></thead><tbody>\n";
  const auto points = [](const Json& before, const Json& after) -> std::string {
    if (!before.is_number() || !after.is_number()) return "<td>–</td>";
    const double gain = (after.get<double>() - before.get<double>()) * 100;
    return fmt::format("<td class=\"{}\">{:+.1f}</td>", gain > 0 ? "up" : gain < 0 ? "down" : "", gain);
  };
  const Heldout sampled = run.totals.heldout.of(Decoding::kSampled);
  const auto interval = [](std::span<const TaskScore> scores) {
    const auto rate = pass_rate(scores);
    return rate ? fmt::format("<small>[{:.0f}, {:.0f}]</small>", rate->low * 100, rate->high * 100) : std::string();
  };
  for (const std::string& kind : run.ledger.plan().kinds) {
    const Json& k = at(kinds, kind);
    const Heldout part = sampled.of_kind(kind);
    out += fmt::format("<tr><td>{}</td><td>{}{}</td><td>{}{}</td>{}<td>{}</td><td>{}</td>{}<td>{} episodes</td></tr>\n",
                       escape(kind), percent(at(k, "before")), interval(part.before), percent(at(k, "after")),
                       interval(part.after), points(at(k, "before"), at(k, "after")), percent(at(k, "greedy_before")),
                       percent(at(k, "greedy_after")), points(at(k, "greedy_before"), at(k, "greedy_after")),
                       training.contains(kind) ? training.at(kind) : 0);
  }
  return out + "</tbody></table></div>\n";
}

// Means over the episodes of a step.
std::string terms_chart(const RunFiles& run) {
  constexpr size_t kMostShown = 8;
  std::set<std::string> names;
  for (const Json& line : run.steps) {
    if (const Json& terms = at(line, "terms"); terms.is_object()) {
      for (const auto& [name, value] : terms.items()) names.insert(name);
    }
  }
  Chart chart{.title = fmt::format("Terms of the reward (mean of {} steps)", kSmoothing)};
  int colour = 0;
  for (const std::string& name : names) {
    if (chart.series.size() == kMostShown) break;
    std::vector<std::pair<double, double>> points;
    for (const Json& line : run.steps) {
      if (const Json& value = at(at(line, "terms"), name); value.is_number())
        points.emplace_back(number_at(line, "step"), value.get<double>());
    }
    chart.series.push_back({name, smoothed(points, kSmoothing), colour++, false});
  }
  return chart.series.empty() ? "" : line_chart(chart);
}

// Held-out success by step, from before training to after it.
std::string heldout_chart(const RunFiles& run, const Json& summary) {
  const Json& heldout = at(summary, "heldout");
  if (!at(heldout, "during").is_array() || at(heldout, "during").empty()) return "";
  std::vector<std::pair<double, double>> sampled, greedy;
  const auto add = [](auto& points, double step, const Json& rate) {
    if (const auto value = maybe_number_at(rate, "pass_rate")) points.emplace_back(step, *value);
  };
  add(sampled, 0, at(heldout, "before"));
  add(greedy, 0, at(at(heldout, "greedy"), "before"));
  for (const Json& one : at(heldout, "during")) {
    add(sampled, number_at(one, "step"), at(one, "sampled"));
    add(greedy, number_at(one, "step"), at(one, "greedy"));
  }
  const double last = run.ledger.plan().steps;
  add(sampled, last, at(heldout, "after"));
  add(greedy, last, at(at(heldout, "greedy"), "after"));
  return line_chart({.title = "Success on held-out tasks, by step",
                     .series = {{"sampled", sampled, 0, false}, {"greedy", greedy, 3, false}},
                     .levels = floors_of(summary),
                     .low = 0.0,
                     .high = 1.0,
                     .percent = true});
}

// A chart for steps of several updates: how far the last one was from the policy before the step.
std::string updates_chart(const RunFiles& run) {
  std::vector<std::pair<double, double>> distance;
  for (const Json& line : run.steps) {
    const Json& updates = at(line, "updates");
    if (updates.is_array() && !updates.empty())
      distance.emplace_back(number_at(line, "step"), number_at(updates.back(), "approx_kl"));
  }
  if (distance.empty()) return "";
  return line_chart({.title = "Distance of a step's last update from the policy before the step, KL",
                     .series = {{"KL", distance, 4, false}}});
}

std::string curves(const RunFiles& run, const Json& summary) {
  const auto success = points_of(run.steps, "success");
  std::string out = "<h2>Training</h2>\n<div class=\"charts\">\n";
  out += line_chart({.title = fmt::format("Success of training episodes (thick: mean of {} steps)", kSmoothing),
                     .series = {{"each step", success, 0, true}, {"success", smoothed(success, kSmoothing), 0, false}},
                     .levels = floors_of(summary),
                     .low = 0.0,
                     .high = 1.0,
                     .percent = true});
  out += heldout_chart(run, summary);
  Chart kinds{
      .title = fmt::format("Success by kind (mean of {} steps)", kSmoothing), .low = 0.0, .high = 1.0, .percent = true};
  int colour = 0;
  for (const std::string& kind : run.ledger.plan().kinds) {
    std::vector<std::pair<double, double>> points;
    for (const Json& line : run.steps) {
      if (const Json& value = at(at(line, "success_by_kind"), kind); value.is_number()) {
        points.emplace_back(number_at(line, "step"), value.get<double>());
      }
    }
    kinds.series.push_back({kind, smoothed(points, kSmoothing), colour++, false});
  }
  out += line_chart(kinds);
  out += terms_chart(run);
  out += behaviour_charts(run.steps, kSmoothing);
  out += line_chart(
      {.title = "Entropy, nats a token", .series = {{"entropy", points_of(run.steps, "entropy"), 2, false}}});
  out += line_chart({.title = "Mismatch of trainer and sampler, KL (lag of versions included)",
                     .series = {{"KL", points_of(run.steps, "mismatch_kl"), 3, false}}});
  if (const auto distance = points_of(run.steps, "kl");
      std::any_of(distance.begin(), distance.end(), [](const auto& point) { return point.second != 0; })) {
    out += line_chart({.title = "Distance from the reference model, KL", .series = {{"KL", distance, 4, false}}});
  }
  if (const auto changed = points_of(run.steps, "routes_changed"); !changed.empty()) {
    out += line_chart({.title = "Routes of the sampler that the trainer's weights would not choose",
                       .series = {{"share", changed, 5, false}},
                       .low = 0.0,
                       .percent = true});
  }
  if (const auto cut = points_of(run.steps, "truncated_share"); !cut.empty()) {
    out += line_chart({.title = "Sampled tokens whose distribution was cut by top_k, top_p or min_p",
                       .series = {{"share", cut, 5, false}},
                       .low = 0.0,
                       .percent = true});
    out += line_chart({.title = "Tokens that were kept where it was",
                       .series = {{"mean", points_of(run.steps, "kept_tokens"), 4, false}}});
  }
  out += loss_charts(run.steps);
  if (const auto sampled = points_of(run.steps, "branches", "sampled_tokens"); !sampled.empty()) {
    out += line_chart({.title = "Tokens of a step's episodes, sampled and had of a trunk",
                       .series = {{"sampled", sampled, 0, false},
                                  {"of a trunk", points_of(run.steps, "branches", "inherited_tokens"), 2, false}}});
  }
  out += updates_chart(run);
  out += line_chart({.title = "Largest logprob difference on tokens of the same version (0: the same bits)",
                     .series = {{"difference", points_of(run.steps, "max_abs_logprob_diff"), 1, false}}});
  out += line_chart({.title = "Tokens of a step",
                     .series = {{"trained", points_of(run.steps, "trained_tokens"), 0, false},
                                {"of whole samples", points_of(run.steps, "sample_tokens"), 4, false},
                                {"computed", points_of(run.steps, "tree_tokens"), 2, false}}});
  out += line_chart({.title = "Gradient norm", .series = {{"norm", points_of(run.steps, "grad_norm"), 5, false}}});
  out += line_chart(
      {.title = "Groups with a signal", .series = {{"groups", points_of(run.steps, "groups_with_signal"), 6, false}}});
  return out + "</div>\n";
}

// What one process did at a time; waits that overlap with its work are left out.
std::string time_bars(const RunFiles& run, const Json& summary) {
  std::vector<BarRow> rows;
  double longest = 0;
  std::vector<size_t> environments;  // rows whose time is that of several threads
  const Json& roles = at(summary, "seconds");
  if (roles.is_object()) {
    for (const auto& [name, phases] : roles.items()) {
      if (!phases.is_object()) continue;
      const bool engine = phases.contains("generate");
      BarRow row{.name = name, .parts = {}};
      for (const auto& [phase, seconds] : phases.items()) {
        if (engine && (phase == "tools" || phase == "sync")) continue;
        if (phase != "idle" && seconds.is_number() && std::isfinite(seconds.get<double>()))
          row.parts.emplace_back(phase, std::max(0.0, seconds.get<double>()));
      }
      if (const auto idle = maybe_number_at(phases, "idle")) row.parts.emplace_back("idle", std::max(0.0, *idle));
      if (row.parts.empty()) continue;
      double sum = 0;
      for (const auto& [phase, seconds] : row.parts) sum += seconds;
      if (row.parts.size() == 1 && row.parts[0].first == "tools")
        environments.push_back(rows.size());
      else
        longest = std::max(longest, sum);
      rows.push_back(std::move(row));
    }
  }
  const double threads = std::max(1.0, number_at(at(run.config, "env"), "threads", 1));
  for (const size_t row : environments) {
    double& tools = rows[row].parts[0].second;
    tools /= threads;
    if (longest > tools) rows[row].parts.emplace_back("idle", longest - tools);
  }
  std::string out =
      "<h2>Where the time went</h2>\n<p class=\"soft\">Seconds of each process; of environments, the mean of "
      "their threads.</p>\n";
  out += bar_chart(rows);
  std::vector<std::string> parts;
  for (const char* part : {"engine", "env", "trainer", "cores"}) {
    if (const Json& use = at(at(summary, "utilisation"), part); use.is_number())
      parts.push_back(fmt::format("{} {}", part, percent(use)));
  }
  if (!parts.empty()) out += "<p class=\"soft\">Busy: " + join(parts, ", ") + "</p>\n";
  return out;
}

std::string transcript_of(const char* title, const std::optional<Transcript>& transcript) {
  if (!transcript) return fmt::format("<section><h3>{}</h3><p class=\"none\">not measured yet</p></section>", title);
  std::string out = fmt::format(
      "<section><h3>{} <span class=\"reward {}\">reward {:g}</span> <span class=\"soft\">{}, episode {}</span></h3>",
      title, transcript->reward.value_or(0) >= 1 ? "up" : "down", transcript->reward.value_or(0),
      escape(transcript->outcome), transcript->episode);
  if (transcript->passages.empty()) return out + "<p class=\"none\">its tokens are not on disk</p></section>";
  out += "<pre>";
  for (const Passage& passage : transcript->passages) {
    const bool cut = passage.text.size() > kPassageLimit;
    std::string text = escape(std::string_view(passage.text).substr(0, kPassageLimit));
    if (cut) text += fmt::format(" … ({} more bytes)", passage.text.size() - kPassageLimit);
    out += passage.sampled ? "<mark>" + text + "</mark>" : text;
  }
  return out + "</pre></section>";
}

std::string transcripts(const RunFiles& run) {
  std::string out =
      "<h2>The same tasks, before and after</h2>\n<p class=\"soft\">Held-out tasks in the model's own tokens; "
      "<mark style=\"background:var(--mark);color:inherit\">marked</mark> is what it said, the rest is what it was "
      "shown.</p>\n";
  const auto pairs = choose_transcripts(run, kTasksPerKind);
  if (!pairs)
    return out + fmt::format("<p class=\"none\">They cannot be shown: {}</p>\n", escape(pairs.error().message()));
  if (pairs->empty()) return out + "<p class=\"none\">nothing yet</p>\n";
  for (const TranscriptPair& pair : *pairs) {
    const auto reward = [](const std::optional<Transcript>& t) {
      return t && t->reward ? fmt::format("{:g}", *t->reward) : std::string("–");
    };
    out += fmt::format(
        "<details id=\"{0}\"><summary>{0} <span class=\"soft\">{1}, reward {2} → {3}</span></summary><div "
        "class=\"pair\">",
        escape(pair.task), pair.greedy ? "greedy" : "sampled", reward(pair.before), reward(pair.after));
    out += transcript_of("Before", pair.before) + transcript_of("After", pair.after) + "</div></details>\n";
  }
  return out;
}

void flatten(const std::string& prefix, const Json& value, std::string& rows) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) flatten(prefix.empty() ? key : prefix + "." + key, inner, rows);
  } else {
    rows += fmt::format("<tr><td><code>{}</code></td><td class=\"text\">{}</td></tr>\n", escape(prefix),
                        escape(text_of(value)));
  }
}

std::string table_in_details(std::string_view id, std::string_view title, const Json& object) {
  std::string rows;
  flatten("", object, rows);
  return fmt::format(
      "<details id=\"{}\"><summary>{}</summary><div "
      "class=\"scroll\"><table><tbody>\n{}</tbody></table></div></details>\n",
      id, title, rows);
}

std::string facts(const RunFiles& run, const Json& summary) {
  Json versions = {{"tandem", TANDEM_VERSION}, {"numerics_id", at(summary, "numerics_id")}};
  if (const Json& more = at(run.supervisor, "versions"); more.is_object()) versions.update(more);
  Json books = Json::object();
  for (const char* key : {"episodes", "outcomes", "tokens", "logprob", "weights", "utilisation", "retokenised_turns",
                          "compactions", "branches", "steals", "restarts", "judge"})
    books[key] = at(summary, key);
  return "<h2>Books, config, versions</h2>\n" + table_in_details("books", "Books of the run", books) +
         table_in_details("config", "Config, every key", run.config) +
         table_in_details("versions", "Versions", versions);
}

}  // namespace

std::string render_report(const RunFiles& run, PageUpdates updates) {
  const Json summary = summarise(run);
  const std::string body = opening(run, summary, updates) + headline(summary) + kinds_table(summary, run) +
                           curves(run, summary) + time_bars(run, summary) + transcripts(run) + facts(run, summary);
  return page("Tandem: " + text_of(at(summary, "run_id")), body, updates);
}

Status write_report(const RunFiles& run) { return write_file(run.dir / "report.html", render_report(run)); }

}  // namespace tandem::dashboard
