// Evaluations made on the spot, for tests.
#pragma once

#include <fmt/format.h>

#include "eval/night.h"

namespace tandem::eval {

inline SampleResult sample_of(const std::string& task, int sample, bool passed, double seconds = 2) {
  SampleResult result{.task = task, .sample = sample, .outcome = rollout::Outcome::kCompleted};
  result.reward = passed ? 1 : 0;
  result.began = 1000 + sample * 10;
  result.seconds = seconds;
  result.prompt_tokens = 100;
  result.completion_tokens = 20;
  return result;
}

// Task i passes `passed[i]` of `samples`.
inline Night night_with(const std::vector<int>& passed, int samples = 4, double seconds = 2) {
  Night night{.suite = "suite", .model = "m", .model_digest = "d", .samples_wanted = samples, .tasks = {}};
  for (size_t i = 0; i < passed.size(); ++i) {
    TaskNight task{fmt::format("kind/task-{:02}", i), "kind", "same", {}};
    for (int sample = 0; sample < samples; ++sample)
      task.samples.push_back(sample_of(task.task, sample, sample < passed[i], seconds));
    night.tasks.push_back(std::move(task));
  }
  return night;
}

}  // namespace tandem::eval
