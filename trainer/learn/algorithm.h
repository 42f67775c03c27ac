// The loss of a step: a name sets the defaults, every value can be overridden (algorithm_config.h).
//
// Names, meanings and sources: docs/algorithms.md.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/advantage.h"
#include "base/status.h"

namespace tandem::trainer {

// The loss of a token; each is a file in losses/.
struct PolicyLoss;
extern const PolicyLoss kClipLoss;

enum class Aggregation : uint8_t { kTokenMean, kSeqMeanTokenMean, kSeqMeanTokenSum, kSumOverLength };

// Importance weights between the trainer's old logprobs and those of the sampler, held constant.
struct Correction {
  enum class Kind : uint8_t { kNone, kTis, kMis, kIcePop };
  Kind kind = Kind::kNone;
  bool sequence_level = false;  // one weight a sequence, the product of its tokens'
  double low = 0;               // mis and icepop drop what lies below
  double high = 2;              // tis caps here, the others drop what lies above
  friend bool operator==(const Correction&, const Correction&) = default;
};

// Distance from the reference model, by D = ref_logprob - logprob, held within +-20: k1 = -D, k2 = D^2 / 2,
// k3 = e^D - D - 1.
struct Kl {
  enum class Estimator : uint8_t { kNone, kK1, kK2, kK3 };
  Estimator estimator = Estimator::kNone;
  double coefficient = 0;
  double clamp = 0;        // of the estimate, both sides; 0: off
  bool in_reward = false;  // taken off the reward of each token instead of added to the loss
  friend bool operator==(const Kl&, const Kl&) = default;
};

// A custom loss or custom advantages: a script or a library, run by LibTorch (trainer/torch/function_loader.h).
struct TorchSource {
  std::string script;                // a file of TorchScript: Python source, or a saved module
  std::string library;               // or a shared library
  std::vector<std::string> options;  // NAME=VALUE each, what the function declares
  bool reference = false;            // whether it gets logprobs of the model that the run started from
  double seconds = 60;               // that a call may take
  friend bool operator==(const TorchSource&, const TorchSource&) = default;
};

// The critic of AdvantageKind::kGae (value_head.h).
struct Critic {
  double learning_rate = 1e-3;
  double coefficient = 0.5;  // of the mean of (v - return)^2
  bool trunk = false;        // whether the model's weights learn from it too
  friend bool operator==(const Critic&, const Critic&) = default;
};

// Credit by turns (batch_advantages.h).
struct Gigpo {
  double weight = 1;   // of a turn's advantage beside that of its episode
  bool scaled = true;  // whether both are divided by the deviation
  friend bool operator==(const Gigpo&, const Gigpo&) = default;
};

// A teacher that another program runs, behind an OpenAI-compatible endpoint (trainer/teacher_client.h).
struct TeacherEndpoint {
  std::string url;                // base URL; empty: none
  std::string model;              // its name there
  std::string key_env, key_file;  // where its key is; both empty: it needs none
  double seconds = 60;            // of one request
  int retries = 5;
  int concurrency = 8;  // requests at a time
  friend bool operator==(const TeacherEndpoint&, const TeacherEndpoint&) = default;
};

// On-policy distillation: a teacher gives the logprob of every sampled token, and -weight (logprob of the sampler
// - logprob of the teacher) is added to the token's advantage, after everything computed from rewards. The teacher is a
// second model, or the model itself, as it is in the step, with a hint in its prompt.
struct Teacher {
  std::string path;          // a model directory, or a step of a run; empty: none
  TeacherEndpoint endpoint;  // or this
  std::string hint;          // or this text, behind the task (rollout/agent/hint.h)
  int hint_tokens = 512;     // of a hint, at most
  double weight = 1;
  double clamp = 0;  // of that difference, nats, both sides; 0: off
  bool is_remote() const { return !endpoint.url.empty(); }
  bool is_hinted() const { return !hint.empty(); }
  bool any() const { return !path.empty() || is_remote() || is_hinted(); }
  friend bool operator==(const Teacher&, const Teacher&) = default;
};

// Samples of a file that join every batch (demonstrations.h): `coefficient` times the mean negative log-likelihood of
// their trained tokens is added to the loss. Set for the whole run, not for a part.
struct DemonstrationTerm {
  int samples = 0;  // a step; 0: none
  double coefficient = 0.1;
  friend bool operator==(const DemonstrationTerm&, const DemonstrationTerm&) = default;
};

// Credit of samples that share a trunk (branch_credit.h).
struct BranchCredit {
  bool by_tree = true;  // what they share counts once, by the mean of their advantages; false: once for each sample
  double local = 0;     // weight of an advantage among the samples of a trunk, beside that of the group
  friend bool operator==(const BranchCredit&, const BranchCredit&) = default;
};

// What the entropy of the policy is held at (entropy_control.h).
struct EntropyTarget {
  double target = 0;    // nats a token; 0: no control
  double step = 0.005;  // of the coefficient of the bonus, after each step of the optimizer
  double most = 1;      // largest coefficient
  bool any() const { return target > 0; }
  friend bool operator==(const EntropyTarget&, const EntropyTarget&) = default;
};

struct Algorithm {
  std::string name = "dr_grpo";
  const PolicyLoss* policy = &kClipLoss;
  AdvantageKind advantage = AdvantageKind::kDrGrpo;
  double std_epsilon = 1e-6;
  int pass_k = 4;  // samples of a subset, of pass_at_k
  Gigpo gigpo;
  BranchCredit branches;
  Teacher teacher;
  double gamma = 1, lambda = 1;  // of reinforce++, gae and gigpo; lambda of gae alone
  bool whiten_advantages = false;
  double clip_low = 0.2, clip_high = 0.2;  // distances of the ratio from 1
  double dual_clip = 0;                    // 0: off; else bounds the loss of a negative advantage
  double mask_low = 0.2, mask_high = 0.2;  // dppo: differences of probability
  double penalty = 1e-3;                   // dppo
  Aggregation aggregation = Aggregation::kTokenMean;
  double aggregation_length = 0;  // for kSumOverLength
  Correction correction;
  Kl kl;
  double entropy = 0;                              // coefficient of an entropy bonus
  EntropyTarget entropy_target;                    // set for the whole run, not for a part
  Critic critic;                                   // of kGae
  TorchSource torch;                               // of a loss of the user's own
  TorchSource own_advantages;                      // of AdvantageKind::kTorch
  std::map<std::string, double, std::less<>> own;  // numbers of this loss alone that are not their defaults
  DemonstrationTerm demonstrations;
  int dynamic_sampling = 0;  // default of trainer.dynamic_sampling; 0: none
  // Other algorithms for some kinds of task; a part has no parts.
  std::vector<Algorithm> parts = {};
  std::vector<std::string> kinds = {};  // of a part: whose tasks
  double weight = 1;                    // of a part: of its loss beside those of the others
  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

// The defaults of a name. kInvalid suggests the nearest.
Result<Algorithm> algorithm_named(std::string_view name);
std::vector<std::string_view> algorithm_names();

// The algorithm of part number `part`: 0, and any number without a part, is the algorithm itself.
const Algorithm& part_of(const Algorithm& algorithm, size_t part);
// The number of the part for a kind of task.
size_t part_for(const Algorithm& algorithm, std::string_view kind);
// Whether `has` holds for the algorithm or any of its parts.
bool any_part(const Algorithm& algorithm, bool (*has)(const Algorithm&));

// Whether a step needs the logprobs of the model that the run started from. For one part, as all functions below.
bool needs_reference(const Algorithm& algorithm);
// Whether it needs the values of a critic.
bool needs_critic(const Algorithm& algorithm);
// Whether the loss is a custom function (own_functions.h).
bool is_function(const Algorithm& algorithm);
// Whether ratios are taken against the sampler, whatever else is given.
bool is_against_sampler(const Algorithm& algorithm);
// Whether the loss of one sample depends on others by more than its group's baseline and the denominators: advantages
// are made of the rewards of the whole batch, by the trainer.
bool is_of_whole_batch(const Algorithm& algorithm);

}  // namespace tandem::trainer
