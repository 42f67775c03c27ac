// An evaluation at work: the shell around the schedule. It plays samples on threads, keeps what they came to, and
// decides nothing.
//
// Returns once every thread that it started has ended. Errors are of the folder alone: what goes wrong with a sample is
// its outcome.
#pragma once

#include <functional>
#include <stop_token>

#include "eval/endpoint.h"
#include "eval/folder.h"
#include "eval/player.h"
#include "eval/schedule.h"

namespace tandem::eval {

struct EvaluationProgress {
  size_t done = 0, total = 0;  // samples, those of earlier calls included
  size_t passed = 0, verdicts = 0;
  size_t running = 0;
  std::optional<double> seconds_left;  // once a sample has ended in this call
};

struct EvaluationJob {
  const Suite& suite;
  const std::vector<envs::Task>& tasks;  // in the order of the identity
  const Identity& identity;
  envs::SandboxBackend& backend;
  std::shared_ptr<envs::PackageService> packages;  // registries that samples have; may be null
  ModelSource& source;
  // Watches over the model where it can be gone, and calls `on_gone` then, on a thread of its own; empty for one in
  // this process. What it returns ends the watch when it is destroyed.
  std::function<std::unique_ptr<EndpointWatch>(std::function<void(std::string why)> on_gone)> watch;
  std::function<void(const EvaluationProgress&)> on_progress;  // several times a second, on the caller's thread
  std::stop_token stop;                                        // what has not ended is left for the next call
};

// Runs every sample that the folder lacks; where all are there and too many have no verdict, or where it was cut short,
// those without one again.
Result<ScheduleOver> evaluate(const EvaluationJob& job, EvaluationFolder& folder, const Clock& clock);

// The open samples, as (task of `own`, sample).
std::vector<SampleKey> open_samples(const Identity& identity, const Gates& gates,
                                    const std::map<SampleKey, SampleResult>& known);

}  // namespace tandem::eval
