#include "eval/work_comparison.h"

#include <algorithm>
#include <cmath>

#include "eval/statistics.h"

namespace tandem::eval {
namespace {

constexpr double kShortestTime = 1e-3;    // seconds; what is shorter is noise of a clock
constexpr double kSmallestChange = 1e-9;  // of a task's value: below it, the order of additions

struct WorkFigure {
  const char* name;
  const char* words;
  Average average;
  std::optional<double> (*value)(const SampleResult&);
};

template <uint64_t WorkSize::*figure>
std::optional<double> size_of_work(const SampleResult& s) {
  return s.diff ? std::optional(static_cast<double>((*s.diff).*figure)) : std::nullopt;
}

std::optional<double> lines_of_work(const SampleResult& s) {
  if (!s.diff) return std::nullopt;
  return static_cast<double>(s.diff->lines_added) + static_cast<double>(s.diff->lines_removed);
}

std::optional<double> lints_of_work(const SampleResult& s) {
  return s.diff && s.diff->new_lints ? std::optional(static_cast<double>(*s.diff->new_lints)) : std::nullopt;
}

std::optional<double> tests_of_work(const SampleResult& s) {
  return s.diff ? std::optional(s.diff->test_files > 0 ? 1.0 : 0.0) : std::nullopt;
}

bool was_counted(const SampleResult& s, std::string_view name) {
  return std::find(s.not_counted.begin(), s.not_counted.end(), name) == s.not_counted.end();
}

std::optional<double> counted(const SampleResult& s, std::string_view name, int value) {
  return was_counted(s, name) ? std::optional(static_cast<double>(value)) : std::nullopt;
}

std::optional<double> parallel_share(const SampleResult& s) {
  const auto& b = s.behaviour;
  if (b.calls <= 0 || !was_counted(s, "parallel_calls")) return std::nullopt;
  return std::min(1.0, static_cast<double>(b.parallel_calls) / b.calls);
}

std::optional<double> seconds_to_edit(const SampleResult& s) {
  if (s.behaviour.edits <= 0 || !was_counted(s, "seconds_to_edit")) return std::nullopt;
  return s.behaviour.seconds_to_edit;
}

constexpr WorkFigure kSizeFigures[] = {
    {"files", "files changed", Average::kGeometric, size_of_work<&WorkSize::files>},
    {"lines_added", "lines added", Average::kGeometric, size_of_work<&WorkSize::lines_added>},
    {"lines_removed", "lines removed", Average::kGeometric, size_of_work<&WorkSize::lines_removed>},
    {"lines_changed", "lines changed", Average::kGeometric, lines_of_work},
    {"new_lints", "new lints", Average::kMean, lints_of_work},
    {"tests_touched", "share that touched tests", Average::kShare, tests_of_work},
};

constexpr WorkFigure kBehaviourFigures[] = {
    {"edits", "edits", Average::kMean, [](const auto& s) { return counted(s, "edits", s.behaviour.edits); }},
    {"edits_undone", "edits undone later", Average::kMean,
     [](const auto& s) { return counted(s, "edits_undone", s.behaviour.edits_undone); }},
    {"reads_before_edit", "reads before the first edit", Average::kMean,
     [](const auto& s) { return counted(s, "reads_before_edit", s.behaviour.reads_before_edit); }},
    {"searches", "searches", Average::kMean,
     [](const auto& s) { return counted(s, "searches", s.behaviour.searches); }},
    {"parallel_share", "share of calls run in parallel", Average::kShare, parallel_share},
    {"seconds_to_edit", "seconds to the first edit", Average::kGeometricTime, seconds_to_edit},
};

// The scale on which values are averaged, and back.
double to_scale(Average average, double value) {
  if (average == Average::kGeometric) return std::log1p(value);
  if (average == Average::kGeometricTime) return std::log(std::max(value, kShortestTime));
  return value;
}

double from_scale(Average average, double value) {
  if (average == Average::kGeometric) return std::expm1(value);
  return average == Average::kGeometricTime ? std::exp(value) : value;
}

double change_of(Average average, double difference) {
  const bool is_ratio = average == Average::kGeometric || average == Average::kGeometricTime;
  return is_ratio ? std::expm1(difference) : difference;
}

enum class Counted : uint8_t { kAll, kPassed };

struct TaskValue {
  double value = 0;
  size_t samples = 0;
};

TaskValue value_of_task(const WorkFigure& figure, std::span<const SampleResult> samples, Counted which) {
  TaskValue out;
  for (const auto& sample : samples) {
    if (!sample.has_verdict() || (which == Counted::kPassed && !sample.passed())) continue;
    const auto value = figure.value(sample);
    if (!value) continue;
    out.value += to_scale(figure.average, *value);
    ++out.samples;
  }
  if (out.samples > 0) out.value /= static_cast<double>(out.samples);
  return out;
}

FigureComparison compare_figure(const WorkFigure& figure, std::span<const TaskPair> tasks, double confidence,
                                Counted which) {
  FigureComparison out{.name = figure.name, .words = figure.words, .average = figure.average};
  FigureChange change;
  std::vector<PairedRate> values;
  for (const auto& task : tasks) {
    const auto then = value_of_task(figure, task.before, which), now = value_of_task(figure, task.after, which);
    if (then.samples == 0 || now.samples == 0) continue;
    const bool same = std::abs(now.value - then.value) < kSmallestChange;
    values.push_back({then.value, same ? then.value : now.value});
    change.samples_before += then.samples;
    change.samples_after += now.samples;
    change.before += then.value;
    change.after += values.back().after;
  }
  const auto difference = paired_difference(values, confidence);
  if (!difference) return out;
  const auto count = static_cast<double>(difference->tasks);
  change.before = from_scale(figure.average, change.before / count);
  change.after = from_scale(figure.average, change.after / count);
  change.change = change_of(figure.average, difference->points);
  change.low = change_of(figure.average, difference->low);
  change.high = change_of(figure.average, difference->high);
  change.low95 = change_of(figure.average, difference->low95);
  change.high95 = change_of(figure.average, difference->high95);
  change.tasks = difference->tasks;
  change.enough_tasks = std::exp2(1 - count) <= 1 - confidence;
  out.change = change;
  return out;
}

const char* name_of(Average average) {
  switch (average) {
    case Average::kMean:
    case Average::kShare:
      return "mean";
    default:
      return "geometric_mean";
  }
}

Json figures_json(const std::vector<FigureComparison>& figures) {
  Json json = Json::object();
  for (const auto& figure : figures) {
    const auto& c = figure.change;
    if (!c) {
      json[figure.name] = nullptr;
      continue;
    }
    json[figure.name] = {{"average", name_of(figure.average)},
                         {"before", c->before},
                         {"after", c->after},
                         {"change", c->change},
                         {"interval", {c->low, c->high}},
                         {"ci95", {c->low95, c->high95}},
                         {"tasks", c->tasks},
                         {"samples", {c->samples_before, c->samples_after}},
                         {"sure", c->rose()   ? Json("rose")
                                  : c->fell() ? Json("fell")
                                              : Json()}};
  }
  return json;
}

}  // namespace

const FigureComparison* WorkComparison::of_passed(std::string_view name) const {
  const auto found =
      std::find_if(passed.begin(), passed.end(), [&](const auto& figure) { return figure.name == name; });
  return found == passed.end() ? nullptr : &*found;
}

WorkComparison compare_work(std::span<const TaskPair> tasks, double confidence) {
  WorkComparison out{.confidence = confidence, .all = {}, .passed = {}};
  for (const auto& figure : kSizeFigures) {
    out.all.push_back(compare_figure(figure, tasks, confidence, Counted::kAll));
    out.passed.push_back(compare_figure(figure, tasks, confidence, Counted::kPassed));
  }
  for (const auto& figure : kBehaviourFigures)
    out.all.push_back(compare_figure(figure, tasks, confidence, Counted::kAll));
  return out;
}

Json to_json(const WorkComparison& comparison) {
  return {{"all", figures_json(comparison.all)}, {"passed", figures_json(comparison.passed)}};
}

}  // namespace tandem::eval
