// What the steps of a run were trained with: values may change where a run goes on, and a replay needs those of then.
//
// Thread safety: none needed; values.
#pragma once

#include <map>
#include <string>

#include "run/config.h"

namespace tandem::run {

class ConfigHistory {
 public:
  // By the log of the run; kCorrupt where that is damaged.
  static Result<ConfigHistory> read(const fs::path& run_dir, const RunConfig& recorded);

  // Of a step, counted from 1.
  Result<RunConfig> of_step(uint64_t step) const;

  // What training depends on and is not the same at both steps, in words; empty: nothing.
  std::string difference(uint64_t step, uint64_t other) const;

 private:
  ConfigHistory(const RunConfig& recorded, std::map<uint64_t, Json> values)
      : recorded_(recorded), values_(std::move(values)) {}
  const Json* values_of(uint64_t step) const;

  RunConfig recorded_;
  std::map<uint64_t, Json> values_;  // by the first step that was trained with them
};

}  // namespace tandem::run
