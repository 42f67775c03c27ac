// Compares two runs: keys of their configs, and their results.
//
// Thread safety: none needed; values.
#pragma once

#include <string>
#include <vector>

#include "archive/entry.h"
#include "run/resume.h"

namespace tandem::archive {

// A figure of both runs; nothing where a run does not have it.
struct Figure {
  std::string name;  // "heldout.after", "tokens.generated", "loss"
  std::optional<double> before, after;
  std::optional<dashboard::Estimate> before_interval, after_interval;  // of a success rate: 95 %
};

struct Comparison {
  RunEntry before, after;
  std::vector<run::ConfigChange> config;  // keys whose values differ; null where a run's version did not know the key
  std::vector<Figure> figures;
  // Success after training, `after` less `before`, over the held-out tasks that both have: paired by task.
  std::optional<dashboard::Estimate> difference;
  size_t paired_tasks = 0;
  std::string unpaired;  // why there is no difference
};

// Losses and the like are means over the last `kLastSteps` steps of each run.
inline constexpr size_t kLastSteps = 10;

// Both runs may be on. The errors are those of dashboard::read_run(), each naming its run.
Result<Comparison> compare_runs(const fs::path& before, const fs::path& after);

Json to_json(const Comparison& comparison, double now);

}  // namespace tandem::archive
