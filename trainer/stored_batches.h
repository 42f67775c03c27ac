// The work of the trainer's storage thread: writes trajectories to the disk and reads batches of them.
//
// Thread safety: none; whoever calls owns the store meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rollout/books/trajectory.h"
#include "trainer/learn/demonstrations.h"
#include "trainer/learn/learner.h"
#include "trainer/teacher_client.h"
#include "trainer/work_order.h"

namespace tandem::trainer {

// A batch with the tokens of its episodes, but for those that could not be read.
struct Loaded {
  uint64_t step = 0;
  std::vector<Sample> samples;
  std::vector<rollout::EpisodeKey> missing;
  // Of asking a teacher behind an endpoint.
  double teacher_seconds = 0;
  TeacherUse teacher;
};

// Trajectories that came in and are not acknowledged yet; senders[i] waits for trajectories[i].
struct Received {
  std::vector<rollout::Trajectory> trajectories;
  std::vector<std::string> senders;
  size_t bytes = 0;
};
// The result of storing them.
struct Stored {
  Status status;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  size_t stored = 0;  // trajectories that there are now
};

// Stores with one fsync. Trajectories that are stored already are acknowledged again.
Stored store_all(rollout::TrajectoryStore& store, const Received& received);

// RUN/demonstrations.jsonl, where the algorithm has a term of them.
Result<std::optional<Demonstrations>> read_demonstrations(const fs::path& run_dir, const Algorithm& algorithm,
                                                          const model::ModelConfig& model);
// Appends the demonstrations of a step to its samples.
void add_demonstrations(const std::optional<Demonstrations>& demonstrations, const Algorithm& algorithm, uint64_t seed,
                        Loaded& loaded);

// Each sample with the part of the algorithm that its kind of task has. Trajectories that cannot be read are logged and
// counted as missing.
Loaded load(const rollout::TrajectoryStore& store, const Batch& batch, const Algorithm& algorithm);

}  // namespace tandem::trainer
