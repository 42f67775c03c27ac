// The rewards and environments of a run's own, as its config names them: programs, servers, judges.
//
// What reward.files and reward.judge_rubric name is copied into RUN/reward/ when the run begins, and the run goes on
// with that copy until it ends.
#pragma once

#include <memory>

#include "envs/foreign/foreign_environments.h"
#include "envs/rewards/judge.h"
#include "envs/rewards/rewards.h"
#include "run/config.h"

namespace tandem::run {

inline constexpr const char* kRewardFolder = "reward";

// The keys `reward.*`, bound to `config`.
void add_reward_fields(Schema& schema, RunConfig& config);

// Contradictions between keys; see envs::mistakes_of.
std::vector<std::string> reward_mistakes(const RunConfig& config);

// kInvalid where a file that the config names is not there, kUnfit where a key is not.
Status check_rewards(const RunConfig& config);

// Copies the files into RUN/reward/; kInvalid, naming it, where one is not what the run began with.
Status record_rewards(const RunConfig& config, const fs::path& run_dir);

// The run's own rewards, beside those of the tasks; null where the config has none.
Result<std::shared_ptr<envs::Rewards>> rewards_of_run(const RunConfig& config, const fs::path& run_dir,
                                                      const Clock& clock);

// The judge that compares episodes of a group; null where the config has none.
Result<std::shared_ptr<envs::Judge>> group_judge_of_run(const RunConfig& config, const fs::path& run_dir);

// Environments of the run's own; null where the config has none.
Result<std::shared_ptr<envs::ForeignEnvironments>> foreign_environments_of(const RunConfig& config);

// How long a rollout waits for an answer of an environment server before it asks once more, in seconds.
struct EnvDeadlines {
  double request = 30;                    // of a sandbox, a call
  double grade = 0;                       // 0: as a request
  std::map<std::string, double> of_kind;  // of tasks of the kinds that env.external names
};
// No shorter than what the server itself may take: its own deadline then says what was slow. Fails as profile_of.
Result<EnvDeadlines> env_deadlines_of(const RunConfig& config);

// The upper limit for the tests of a task: an episode is revoked after rollout.episode_seconds. 0 for tasks of the
// workspace family.
double grade_seconds_of(const RunConfig& config);

// Describes the learned reward for people: "reward.command in the sandbox; 0.5 style, 1 task".
std::string describe_rewards(const RunConfig& config);

}  // namespace tandem::run
