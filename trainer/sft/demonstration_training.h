// The warm start as a training: its steps, checkpoints, and the model at the end.
//
// The result is a function of the settings and the model alone: a training that was killed and goes on ends with the
// same bits. In its folder: `checkpoints/` (trainer/learn/checkpoints.h), of which only the newest is kept.
#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "base/json.h"
#include "trainer/sft/warm_start.h"

namespace tandem::trainer {

struct DemonstrationStage {
  int steps = 0;
  double learning_rate = 0;
  envs::Noise noise;
};

struct DemonstrationSettings {
  fs::path model;   // to start from
  fs::path folder;  // of the training
  fs::path out;     // the trained model; must not be there
  std::vector<DemonstrationStage> stages;
  std::vector<std::string> kinds;
  uint64_t seed = 1;
  int transcripts_per_step = 16;
  int max_tokens = 1024;  // longer demonstrations are left out
  int warmup_steps = 0;
  double checkpoint_seconds = 30;
  model::Place place;  // where it computes
};

// When a checkpoint is due: so many seconds after the one before, and after nine times the time that saving it took, so
// that checkpoints take at most a tenth of the time on a slow disk. Pure: times are seconds of any clock.
class CheckpointTimer {
 public:
  CheckpointTimer(double interval, double now) : interval_(interval), due_(now + interval) {}
  bool due(double now) const { return now >= due_; }
  void saved(double began, double now);

 private:
  double interval_, due_;
};

struct DemonstrationResult {
  bool interrupted = false;
  int64_t steps = 0, step = 0;  // planned, taken
};

// Goes on from the newest checkpoint in the folder, or begins. `tell` gets an event at a time: "resumed", "step",
// "checkpoint". Once `stop` is requested the step under way is finished and a checkpoint saved. A checkpoint that
// cannot be written ends the training; the one before it stays.
Result<DemonstrationResult> train_on_demonstrations(const DemonstrationSettings& settings,
                                                    const std::function<void(const Json&)>& tell,
                                                    const std::stop_token& stop);

}  // namespace tandem::trainer
