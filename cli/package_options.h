// Registries of packages as a command line names them: those that env.packages of a run has.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "envs/packages/cache.h"

namespace tandem::cli {

struct PackageOptions {
  std::vector<std::string> registries;  // NAME or NAME=URL each
  std::vector<std::string> settings;    // KEY=VALUE each, of env.packages
  std::string config;                   // of a run, whose env.packages are taken; empty: none
  std::string lock, record;             // files packages.lock; empty: none
};

// --packages, --packages-config, --packages-set, --packages-lock and --packages-record.
void add_package_options(CLI::App& command, PackageOptions& options);

// Null where they name no registry. `call_seconds` is the limit of a call. kInvalid, naming flag and key, where one of
// them is none; else as PackageCache::open.
Result<std::shared_ptr<envs::PackageCache>> packages_of(const PackageOptions& options, double call_seconds);

// The keys that give a run the same, each behind a space, for a command line of `tandem run`.
std::string keys_of_run(const PackageOptions& options);

}  // namespace tandem::cli
