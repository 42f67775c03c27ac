// Merges the config of a run that is resumed.
//
// A run stays what it was: its plan, its model, its tasks. Values that are given beside --resume (on the command line,
// in the environment, or by a config file that says something else than when the run began) are taken where that is
// sound, and refused by name where it is not; none is ignored. A value that was given on the command line when the run
// began is not displaced by the file's.
//
// Thread safety: none needed; values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "run/config.h"

namespace tandem::run {

struct ConfigChange {
  std::string key;
  Json before, after;
};

struct RecordedConfig {
  RunConfig config;
  int format = 0;
  std::set<std::string>
      given;  // keys that came from the command line or the environment, in this life or an earlier one
};

// RUN/config.resolved.json in full. kInvalid where it is of a newer format.
Result<RecordedConfig> read_recorded(const fs::path& run_dir);

// Its config alone.
Result<RunConfig> read_resolved(const fs::path& run_dir);
// The content of that file.
std::string recorded_text(const RunConfig& config, const std::set<std::string>& given);
// Writes it.
Status write_recorded(const fs::path& run_dir, const RunConfig& config, const std::set<std::string>& given);

// The keys of `schema` that the command line or the environment has set.
std::set<std::string> given_keys(const Schema& schema);

struct ResumedConfig {
  RunConfig config;
  std::set<std::string> given;
  std::vector<ConfigChange> changes;
};

// The config of the resumed run; `wanted` was read with `schema`. kInvalid names every key that must not change, with
// its recorded and its wanted value.
Result<ResumedConfig> resume_config(const RecordedConfig& recorded, const RunConfig& wanted, const Schema& schema,
                                    const fs::path& run_dir);

// The config by path, {"run.steps": 4, ..}: what the log of a run keeps.
Json flat(const RunConfig& config);

}  // namespace tandem::run
