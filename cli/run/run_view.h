// Output of `tandem run`: plan, progress, result; and TensorBoard's file.
//
// Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "dashboard/run_files.h"
#include "dashboard/tensorboard.h"
#include "run/topology.h"

namespace tandem::cli {

// For --dry-run. `memory` is run::memory_of, `tasks` a sentence on them.
void print_plan(const run::RunConfig& config, const run::Topology& topology, const Schema& schema, const Json& memory,
                const std::string& tasks);

// The result on one screen. `steps` are those of the plan.
void print_result(const fs::path& run_dir, const Json& summary, int steps);

// Progress: on a terminal a few lines that are redrawn, elsewhere a line now and then.
class Screen {
 public:
  Screen(const fs::path& run_dir, const Clock& clock);
  void note(const std::string& text);
  void show(const Json& report);
  void wipe();

 private:
  const fs::path run_dir_;
  const Clock& clock_;
  const Time started_;
  const bool tty_;
  Time next_{};
  int drawn_ = 0;
  std::string last_;
};

// RUN/tb is a view of the metrics, not a record: one file, begun anew with each life of the run, and once more at its
// end where a step would be in it twice.
class Tensorboard {
 public:
  Tensorboard(const fs::path& run_dir, const Clock& clock);
  // While the run is on.
  void follow();
  // `steps` are the last lines of all. A file that has each of them once stays: readers have it open.
  void finish(const std::vector<Json>& steps);

 private:
  void begin();
  void add(const Json& line);

  const fs::path folder_;
  const Clock& clock_;
  dashboard::MetricsFollower lines_;
  std::optional<dashboard::EventFile> file_;
  std::vector<double> written_;  // steps of the lines in it
  Time next_{};
};

}  // namespace tandem::cli
