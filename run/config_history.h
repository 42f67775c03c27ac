// The config of every step of a run: values may change on --resume, and a replay needs the earlier ones.
//
// Thread safety: none needed; values.
#pragma once

#include <map>
#include <string>

#include "run/config.h"

namespace tandem::run {

class ConfigHistory {
 public:
  // Reads the log of the run; kCorrupt where it is damaged.
  static Result<ConfigHistory> read(const fs::path& run_dir, const RunConfig& recorded);

  // The config of a step, counted from 1.
  Result<RunConfig> of_step(uint64_t step) const;

  // Describes config values that affect training and differ between the steps; empty where none do.
  std::string difference(uint64_t step, uint64_t other) const;

 private:
  ConfigHistory(const RunConfig& recorded, std::map<uint64_t, Json> values)
      : recorded_(recorded), values_(std::move(values)) {}
  const Json* values_of(uint64_t step) const;

  RunConfig recorded_;
  std::map<uint64_t, Json> values_;  // by the first step that was trained with them
};

}  // namespace tandem::run
