// What differs in the work of two evaluations, in words
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "eval/work_comparison.h"

namespace tandem::eval {
namespace {

constexpr size_t kShownLines = 8;
constexpr const char* kOfAll = "all";
constexpr const char* kOfPassed = "passed";

// Changes of this average are written as so many per cent or points of 1.
double unit_of(Average average) { return average == Average::kMean ? 1 : 100; }

const char* unit_name(Average average) {
  switch (average) {
    case Average::kMean:
      return "a sample";
    case Average::kShare:
      return "points";
    default:
      return "%";
  }
}

std::string signed_number(double value) { return value == 0 ? "0" : fmt::format("{:+.3g}", value); }

std::string amount(const FigureComparison& figure, double change) {
  return fmt::format("{} {}", signed_number(change * unit_of(figure.average)), unit_name(figure.average));
}

std::string interval_text(const FigureComparison& figure) {
  const double unit = unit_of(figure.average);
  const auto ends =
      fmt::format("{} to {}", signed_number(figure.change->low * unit), signed_number(figure.change->high * unit));
  return figure.average == Average::kMean ? ends : fmt::format("{} {}", ends, unit_name(figure.average));
}

std::string level(Average average, double value) {
  switch (average) {
    case Average::kShare:
      return fmt::format("{:.3g} %", value * 100);
    case Average::kGeometricTime:
      return fmt::format("{:.3g} s", value);
    default:
      return fmt::format("{:.3g}", value);
  }
}

const char* word_of(const FigureComparison& figure) {
  const auto& change = figure.change;
  if (!change) return "nothing to compare";
  if (change->rose()) return "rose";
  if (change->fell()) return "fell";
  return change->enough_tasks ? "no sure difference" : "too few tasks to be sure";
}

bool is_sure(const FigureComparison& figure) {
  return figure.change && (figure.change->rose() || figure.change->fell());
}

// Calls `each` with the name of the samples and every figure, those that passed after all.
template <typename F>
void each_figure(const WorkComparison& comparison, const F& each) {
  for (const auto& figure : comparison.all) each(kOfAll, figure);
  for (const auto& figure : comparison.passed) each(kOfPassed, figure);
}

}  // namespace

std::string change_text(const FigureComparison& figure, double confidence) {
  if (!figure.change) return "nothing to compare";
  const int tasks = figure.change->tasks;
  return fmt::format("{} ({:g} % interval {}), {} task{}", amount(figure, figure.change->change), confidence * 100,
                     interval_text(figure), tasks, tasks == 1 ? "" : "s");
}

std::string verdict_of(const FigureComparison& figure, double confidence) {
  if (!figure.change) return fmt::format("nothing to compare: no task has {} in both", figure.words);
  const auto text = fmt::format("{} {}", figure.words, change_text(figure, confidence));
  return is_sure(figure) ? text : fmt::format("{}: {}", word_of(figure), text);
}

std::vector<std::string> work_lines(const WorkComparison& comparison) {
  size_t unsure = 0;
  std::vector<std::string> sure, missing;
  each_figure(comparison, [&](const std::string& samples, const FigureComparison& figure) {
    if (!figure.change) {
      // One that no sample has is missing among those that passed, too.
      if (samples == kOfAll || comparison.all.empty()) {
        missing.push_back(figure.words);
      } else if (std::none_of(missing.begin(), missing.end(), [&](const auto& m) { return m == figure.words; })) {
        missing.push_back(figure.words + " of samples that passed");
      }
    } else if (is_sure(figure)) {
      sure.push_back(fmt::format("{}{}: {} {}", figure.words, samples == kOfPassed ? " of samples that passed" : "",
                                 word_of(figure), change_text(figure, comparison.confidence)));
    } else {
      ++unsure;
    }
  });
  std::vector<std::string> lines;
  if (sure.empty() && unsure == 0) return {"work: nothing to compare"};
  lines.push_back(fmt::format("work: {} of {} figures differ for sure", sure.size(), sure.size() + unsure));
  for (size_t i = 0; i < std::min(sure.size(), kShownLines); ++i) lines.push_back(std::move(sure[i]));
  if (sure.size() > kShownLines)
    lines.push_back(fmt::format("and {} more, as --json and the reports say", sure.size() - kShownLines));
  if (!missing.empty()) lines.push_back(fmt::format("no task has in both: {}", join(missing, ", ")));
  return lines;
}

std::vector<WorkRow> work_rows(const WorkComparison& comparison) {
  std::vector<std::pair<int, WorkRow>> rows;
  each_figure(comparison, [&](const std::string& samples, const FigureComparison& figure) {
    WorkRow row{.samples = samples, .figure = figure.words, .verdict = word_of(figure)};
    if (const auto& c = figure.change) {
      row.before = level(figure.average, c->before);
      row.after = level(figure.average, c->after);
      row.change = amount(figure, c->change);
      row.interval = interval_text(figure);
      row.tasks = std::to_string(c->tasks);
    }
    rows.emplace_back(!figure.change ? 2 : is_sure(figure) ? 0 : 1, std::move(row));
  });
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<WorkRow> out;
  for (auto& [order, row] : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace tandem::eval
