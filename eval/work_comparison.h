// How the work of two evaluations of the same tasks differs: how agents went about it, and how much they changed.
//
// Every figure is compared by itself. A task's value is an average over its samples with a verdict that have the
// figure; a task counts where both evaluations have such a sample. Tasks are paired and resampled as those of pass
// rates (eval/statistics.h). Sizes and times have heavy tails: they are averaged by logarithms, so that one sample of
// 10,000 lines does not outweigh all others, and their change is a ratio of geometric means. Values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace tandem::eval {

// The samples of a task in both evaluations.
struct TaskPair {
  std::span<const SampleResult> before, after;
};

enum class Average : uint8_t {
  kMean,           // the change is after - before
  kShare,          // of samples or calls; the same, in points
  kGeometric,      // of 1 + count, less 1; the change is (1 + after) / (1 + before) - 1
  kGeometricTime,  // of seconds, a millisecond at least; the change is after / before - 1
};

struct FigureChange {
  double before = 0, after = 0;  // the averages over tasks
  double change = 0;
  double low = 0, high = 0;      // of the change, at the confidence
  double low95 = 0, high95 = 0;  // at 95 %
  int tasks = 0;                 // that have the figure in both
  size_t samples_before = 0, samples_after = 0;
  // Whether so many tasks can be sure at all: that all of them point the same way by chance is less likely than
  // 1 - confidence.
  bool enough_tasks = false;

  // At the confidence.
  bool rose() const { return enough_tasks && low > 0; }
  bool fell() const { return enough_tasks && high < 0; }
};

struct FigureComparison {
  std::string name;   // its key in results.json
  std::string words;  // "lines changed"
  Average average = Average::kMean;
  std::optional<FigureChange> change = {};  // nothing where no task has the figure in both
};

struct WorkComparison {
  double confidence = 0.95;
  // Of samples with a verdict: sizes of changes, and behaviour. Of those of them that passed: sizes of changes.
  std::vector<FigureComparison> all, passed;
  // One of `passed` by its name; null where there is none.
  const FigureComparison* of_passed(std::string_view name) const;
};

// 0 < confidence < 1.
WorkComparison compare_work(std::span<const TaskPair> tasks, double confidence);

// {all: {NAME: {average, before, after, change, interval, ci95, tasks, samples: [before, after], sure}}, passed: ..};
// `sure` is "rose", "fell" or null; a figure is null where nothing could be compared. All numbers are finite.
Json to_json(const WorkComparison& comparison);

// "+23.1 % (95 % interval +10.2 to +40 %), 28 tasks".
std::string change_text(const FigureComparison& figure, double confidence);
// The same with a word before it where it is not sure, or nothing could be compared: what a gate says.
std::string verdict_of(const FigureComparison& figure, double confidence);

// Lines for a terminal: how many figures differ, the first of those that are sure, and those that could not be
// compared.
std::vector<std::string> work_lines(const WorkComparison& comparison);

// A row of a report's table, as text.
struct WorkRow {
  std::string samples, figure, before, after, change, interval, tasks, verdict;
};
// The sure ones first, then in the order of the comparison; what could not be compared last.
std::vector<WorkRow> work_rows(const WorkComparison& comparison);

}  // namespace tandem::eval
