// From options to a job: reads the config of every run, estimates what they take, and chooses their folder.
//
// Thread safety: none needed.
#pragma once

#include "cli/launch/launch_options.h"
#include "cli/launch/scheduler.h"

namespace tandem::cli {

// kInvalid where an option has no meaning with this scheduler.
Status check_options(const LaunchOptions& options, Scheduler scheduler);

// kInvalid for what is wrong with the config of any run, or with a path that the cluster does not see.
Result<launch::Job> prepare_job(const LaunchOptions& options, Scheduler scheduler);

// The config as YAML that stands by itself: what the file, what it extends, the environment and the command line say.
Result<std::string> config_text(const LaunchOptions& options);

// A suite as YAML that stands by itself, its paths below the volume, and what surrounds it. The model of a suite is not
// looked at: it is on the volume, not here.
struct NightlyJob {
  launch::Nightly nightly;
  std::string suite;
};
Result<NightlyJob> prepare_nightly(const LaunchOptions& options);

}  // namespace tandem::cli
