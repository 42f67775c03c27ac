// What a trainer leaves in the run directory, copied to the run's standby: trajectories, checkpoints, the export.
//
// Thread safety: as said at each function; the others are of one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "standby/replicator.h"

namespace tandem::trainer {

inline constexpr const char* kTrajectories = "trajectories/episodes.log";

class StandbyCopies {
 public:
  // `standby`: null without one, and then each call does nothing and is ok. Outlives it.
  StandbyCopies(fs::path run_dir, standby::Replicator* standby);

  // What there is before the first step; does not wait. `trajectories`: bytes of the log.
  Status begin(uint64_t trajectories);
  // The log of trajectories has so many bytes now. From the thread that writes it.
  Status trajectories(uint64_t bytes) const;
  // The checkpoint of that version; those that went from the run directory since the last call go there, too.
  Status checkpoint(uint64_t version);
  Status exported() const;

 private:
  Status copy(const std::string& folder, const std::string& last) const;

  const fs::path run_dir_;
  standby::Replicator* const standby_;
  std::set<std::string> copied_;  // checkpoints
};

}  // namespace tandem::trainer
