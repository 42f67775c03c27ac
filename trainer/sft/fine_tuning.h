// Training on samples of transcripts, or on pairs of answers of which one is preferred: steps, validation, the best
// model, checkpoints, and the model at the end. Of pairs also a reward model, whose samples end with the token that
// rewards are read at (SampleSetSettings::rewards).
//
// The result is a function of the settings, the samples and the model alone: a training that was interrupted and goes
// on ends with the same bits, with any number of threads.
//
// In its folder: `checkpoints/` (trainer/learn/checkpoints.h), `best_N/` (the model of the best validation so far),
// `metrics.jsonl` (a line a step and a validation) and of a policy's pairs `reference.jsonl` (reference_sums.h).
// Checkpoints and `best_N` go when the model is written.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "base/json.h"
#include "trainer/learn/learner.h"
#include "trainer/sft/sample_set.h"

namespace tandem::trainer {

struct FineTuningSettings {
  fs::path model;   // to start from
  fs::path folder;  // of the training
  fs::path out;     // the trained model; must not be there
  OptimizerSettings optimizer;
  int epochs = 3;
  int64_t steps = 0;  // 0: as many as the epochs have
  int tokens_per_step = 8192;
  int validate_every = 50;
  int patience = 0;  // validations that may pass without a better one; 0: any number
  int checkpoint_every = 100;
  uint64_t seed = 1;
  model::Place place;         // where it computes
  PreferenceLoss preference;  // of pairs, where there is no `reward`
  // Of pairs: a reward model is trained, and not a policy.
  struct Reward {
    RewardLoss loss;
    double learning_rate = 1e-3;               // of the head
    std::map<std::string, std::string> notes;  // model::RewardHead
  };
  std::optional<Reward> reward;
};

// The validations so far. Pure.
struct Validations {
  // Mean negative log-likelihood of a token, in nats; of pairs their mean loss.
  double best = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  int since_best = 0;
  int64_t last_step = 0;

  // Whether it is the best one.
  bool add(int64_t step, double loss);
  bool exhausted(int patience) const { return patience > 0 && since_best >= patience; }
};

enum class FineTuningEnd : uint8_t { kDone, kStoppedEarly, kInterrupted };

struct FineTuningResult {
  FineTuningEnd end = FineTuningEnd::kDone;
  int64_t steps = 0, step = 0;  // planned, taken
  Validations validations;
};

// The model with what makes it learn; a reward model goes on with the head that it has. kInvalid where the settings do
// not go with the model.
Result<Learner> make_learner(const FineTuningSettings& settings);

// How many steps it is, before any is taken.
int64_t planned_steps(const FineTuningSettings& settings, const SampleSet& samples);

// Goes on from the newest checkpoint in the folder, or begins. `tell` gets an event at a time: "reference", "resumed",
// "validation", "step", "checkpoint". Once `stop` is requested the step under way is finished and a checkpoint saved.
// kInvalid where the checkpoint is of other samples.
Result<FineTuningResult> fine_tune(const FineTuningSettings& settings, const SampleSet& samples, Learner learner,
                                   const std::function<void(const Json&)>& tell, const std::stop_token& stop);

}  // namespace tandem::trainer
