// Repeats steps of a run from its files: the same batches, from the same checkpoints, with the same bits.
//
// Nothing is written. One rank replays what any number trained.
//
// Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "rollout/books/trajectory.h"
#include "trainer/learn/learner.h"
#include "trainer/stored_batches.h"

namespace tandem::trainer {

struct ReplaySettings {
  fs::path run_dir;
  fs::path model;  // version 0
  model::WeightFormat format = model::WeightFormat::kBf16;
  OptimizerSettings optimizer;
  Algorithm algorithm;
  fs::path teacher = {};  // of algorithm.teacher; empty: none, or one whose logprobs the run has kept
  model::Place place;     // where it computes
};

// Digest of the weights as sent to rollouts: `weights_digest` of a step in metrics.jsonl.
Digest digest_of_version(const Learner& learner);

class Replay {
 public:
  // Starts at the newest checkpoint of `version` or before, or at the model where there is none. kCorrupt where that
  // checkpoint is damaged.
  static Result<Replay> open(const ReplaySettings& settings, uint64_t version);

  uint64_t version() const { return static_cast<uint64_t>(learner_.steps()); }
  const Learner& learner() const { return learner_; }

  struct Step {
    uint64_t step = 0;
    size_t episodes = 0;  // that it learned from
    StepMetrics metrics;
    std::vector<rollout::EpisodeKey> missing;  // whose trajectories cannot be read
  };
  // The batch must be of the next step.
  Result<Step> next(const Batch& batch);

  // Describes the first difference from the run's checkpoint of this step; empty where they are equal or there is no
  // such checkpoint.
  Result<std::optional<std::string>> difference_from_checkpoint();

  // The logprobs of the tokens that were sampled, by the weights of this version, at what the episode was sampled at;
  // NaN where another version sampled them.
  Result<std::vector<float>> logprobs(const rollout::Trajectory& trajectory, float logit_scale);

 private:
  Replay(const ReplaySettings& settings, Learner learner, std::optional<Demonstrations> demonstrations,
         rollout::TrajectoryStore store, kernels::Stream stream)
      : settings_(settings),
        learner_(std::move(learner)),
        demonstrations_(std::move(demonstrations)),
        store_(std::move(store)),
        stream_(std::move(stream)) {}

  ReplaySettings settings_;
  Learner learner_;
  std::optional<Demonstrations> demonstrations_;
  rollout::TrajectoryStore store_;
  kernels::Stream stream_;
};

}  // namespace tandem::trainer
