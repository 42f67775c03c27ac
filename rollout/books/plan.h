// The plan of a run: the first event of its log. Books are a function of plan and events.
//
// A value; thread safety: as any value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/advantage.h"
#include "base/json.h"
#include "rollout/books/task_order.h"
#include "rollout/books/truncation.h"

namespace tandem::rollout {

// Weights of the terms in the learned reward; see learned_reward.h.
struct RewardWeights {
  double task = 1, tests = 0, lints = 0, format = 0, effort = 0;
  double effort_token = 0.001, effort_call = 0, effort_turn = 0;
  double effort_k = 1, effort_q = 0.5;
  std::map<std::string, double> terms = {};  // of the user's own rewards, by name
  double turns = 0;                          // of rewards of single messages
  friend bool operator==(const RewardWeights&, const RewardWeights&) = default;
};

// The fate of an episode whose tokens would be older than max_lag if a batch were formed without it.
enum class OnLag : uint8_t {
  kUnbound,  // it is trained late: runs whose log is of format 1
  kWait,     // the batch waits for it
  kDrop,     // it is dropped as too old
};
std::string_view to_string(OnLag on_lag);
Result<OnLag> on_lag_named(std::string_view name);

// How the rewards of a group become advantages.
struct AdvantageRule {
  AdvantageKind advantage = AdvantageKind::kDrGrpo;
  double std_epsilon = 1e-6;
  int pass_k = 4;  // samples of a subset, of AdvantageKind::kPassAtK
  friend bool operator==(const AdvantageRule&, const AdvantageRule&) = default;
};

// Branching in a training group: each `ways` consecutive episodes share a trunk, and branch after one of its turns. The
// turn is drawn from a range by the seed of the trunk.
struct BranchRule {
  int ways = 1;  // 1: each episode is by itself
  int first_turn = 1, last_turn = 1;
  friend bool operator==(const BranchRule&, const BranchRule&) = default;
};

inline constexpr int kMostBranches = 4096, kMostBranchTurns = 10'000;
inline constexpr int kMostSteps = 10'000'000;

// A function of the config that the run began with.
struct RunPlan {
  uint64_t seed = 0;
  int steps = 0;
  int groups_per_step = 8;
  int group_size = 8;
  int max_lag = 1;  // versions that the trainer may be ahead of what sampled a token
  OnLag on_lag = OnLag::kWait;
  bool deterministic = false;  // batches in order of admission, no lag
  RewardWeights reward;
  bool compare = false;          // a judge compares the episodes of a group before it is trained: the term "preferred"
  bool shuffle_rewards = false;  // a control: rewards of a batch's episodes are permuted among them
  std::vector<std::string> kinds;
  CountsByKind counts;  // of the tasks of a set that has an end; empty: tasks are made from seeds, without end
  float temperature = 1;
  Truncation truncation = {};  // of what training episodes are drawn from
  int heldout_tasks = 0;
  int heldout_samples = 4;                // each at temperature 1, and one greedy
  std::string heldout_split = "heldout";  // which wordings, names and formats they are drawn from
  int heldout_every = 0;                  // steps between two measurements while training; 0: none
  int max_attempts = 4;
  AdvantageKind advantage = AdvantageKind::kDrGrpo;
  double std_epsilon = 1e-6;
  int pass_k = 4;                                        // samples of a subset, of AdvantageKind::kPassAtK
  std::map<std::string, AdvantageRule> advantages = {};  // of kinds that have their own
  bool all_groups = false;  // groups of equal rewards are trained, too: a teacher says what is better
  // Limit of groups with equal rewards that a batch leaves out and redraws, in multiples of groups_per_step; 0: they
  // stay in the batch and contribute no gradient.
  int dynamic_sampling = 0;
  bool leave_out_truncated = false;  // truncated episodes count in the baseline of their group, and are not trained
  bool episode_metrics = false;      // batches carry them: functions of the user's own may take them
  BranchRule branch;
  int steal_from = 8;  // a dry worker takes from one that holds at least so many more, and two; 0: never
  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// The rule for groups of this kind of task.
AdvantageRule advantage_of(const RunPlan& plan, const std::string& kind);

// kInvalid where numbers are outside their ranges or there is nothing to train on.
Status check(const RunPlan& plan);

Json to_json(const RunPlan& plan);
// kCorrupt where a key is missing; also the errors of check().
Result<RunPlan> plan_from_json(const Json& json);

}  // namespace tandem::rollout
