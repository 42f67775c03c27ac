// The registries of packages of a run (envs/packages): its config, and RUN/packages.lock.
#pragma once

#include <memory>

#include "envs/packages/cache.h"
#include "run/config.h"

namespace tandem::run {

// Null where the config names none. What its episodes use is recorded in the run's lock, which counts from then on: a
// run that is resumed sees the same pages. Errors as PackageCache::open's.
Result<std::shared_ptr<envs::PackageCache>> packages_of_run(const RunConfig& config, const fs::path& run_dir);

// The text about registries for the model; empty where the run has none.
Result<std::string> packages_told(const RunConfig& config);

// Whether each registry answers, for who is about to start the run; null where it names none.
Result<Json> probe_packages(const RunConfig& config);

}  // namespace tandem::run
