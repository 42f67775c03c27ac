// The `algorithm` section as it is written: a name, and what overrides its defaults.
//
// Thread safety: as any value.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

// Unset and empty values stand for the algorithm's defaults.
struct AlgorithmConfig {
  std::string name = "dr_grpo", advantage, aggregation;
  double std_epsilon = Algorithm{}.std_epsilon;
  int pass_k = Algorithm{}.pass_k;
  Gigpo gigpo;
  std::string branch_credit = "tree";
  double branch_local = BranchCredit{}.local;
  Teacher teacher;
  double gamma = Algorithm{}.gamma, lambda = Algorithm{}.lambda;
  std::optional<bool> whiten_advantages;
  std::optional<double> clip_low, clip_high;
  double dual_clip = Algorithm{}.dual_clip;
  double mask_low = Algorithm{}.mask_low, mask_high = Algorithm{}.mask_high, penalty = Algorithm{}.penalty;
  double aggregation_length = Algorithm{}.aggregation_length;
  struct {
    std::string kind = "none", level = "token";
    std::optional<double> low, high;
  } correction;
  struct {
    std::string estimator = "none";
    double coefficient = Kl{}.coefficient, clamp = Kl{}.clamp;
    bool in_reward = Kl{}.in_reward;
  } kl;
  struct {
    double coefficient = Algorithm{}.entropy;
    EntropyTarget control;
  } entropy;
  std::map<std::string, std::optional<double>> own;  // keys of single losses
  Critic value;                                      // of ppo
  std::string script, library;                       // of torch, as those below
  std::vector<std::string> options;
  std::string advantage_script, advantage_library;
  std::vector<std::string> advantage_options;
  bool reference = false;
  double seconds = TorchSource{}.seconds;
  struct {
    std::vector<std::string> data;
    int samples = 8;
    double coefficient = DemonstrationTerm{}.coefficient;
  } demonstrations;
  std::vector<std::string> kinds;  // a line for each of Algorithm::parts (algorithm_parts.h)
};

// The keys of a run, with limits that catch typing errors.
void add_algorithm_fields(Schema& schema, AlgorithmConfig& config);

// kInvalid names the wrong key.
Result<Algorithm> algorithm_of(const AlgorithmConfig& config);

// Keys that only other losses use, such as "algorithm.sapo.tau_positive".
std::vector<std::string> keys_of_other_losses(const Algorithm& algorithm);

// The same of JSON without the outer key, with every key there is and no limits but those of the formulas. A null is a
// missing key; unknown keys and values out of range are errors that name the key.
Result<Algorithm> algorithm_from_json(const Json& json);

}  // namespace tandem::trainer
