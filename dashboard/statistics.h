// Success rates and how sure they are: intervals by bootstrap over tasks, since samples of one task are no independent
// draws.
//
// The resamples are drawn with a fixed seed: the same scores have the same interval everywhere.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/json.h"

namespace tandem::dashboard {

inline constexpr int kResamples = 2000;

struct TaskScore {
  double passed = 0;  // samples that met the task
  int samples = 0;
};

struct Estimate {
  double value = 0;
  double low = 0, high = 0;  // 95 %
};

// Passed samples among all samples; tasks are resampled whole. Nothing where there are no samples.
std::optional<Estimate> pass_rate(std::span<const TaskScore> tasks);

// The mean over tasks of what each gained. `before[i]` and `after[i]` are the same task; one without samples on either
// side is left out. Nothing where none is left.
std::optional<Estimate> paired_gain(std::span<const TaskScore> before, std::span<const TaskScore> after);

}  // namespace tandem::dashboard
