// How a run ended: what is written for people and scripts, and the exit code.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/run/run_view.h"
#include "run/config.h"
#include "run/disk.h"
#include "run/supervisor.h"

namespace tandem::cli {

// Writes summary.json, report.html and tb/, and the profile into export/; returns the summary.
Result<Json> conclude(const fs::path& run_dir, const run::RunConfig& config, Tensorboard& tensorboard);

struct EndedRun {
  const run::RunConfig& config;
  const fs::path& run_dir;
  const run::Supervisor& supervisor;
  run::DiskWatch& disk;
  Tensorboard& tensorboard;  // that followed the run
  int attempt = 1;
};

// Writes supervisor.json and, where it failed or ended without a result, failure.json, which `failure_recorded` says;
// concludes, and returns the exit code. `show` gets the summary.
Result<int> record_end(const EndedRun& ended, const Clock& clock, const std::function<void(const Json&)>& show,
                       bool& failure_recorded);

}  // namespace tandem::cli
