// The tasks of a run whose config names a set of them.
//
// What the set was when the run began is kept in RUN/tasks.json: the books count on its tasks being the same ones until
// the run ends, however often it is interrupted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "envs/tasks/task_set.h"
#include "run/config.h"

namespace tandem::run {

// The set that the config names; kInvalid where nothing of it would be trained on, kUnfit where this machine lacks
// something that tasks need, naming them. Call it for configs with tasks.path alone.
Result<envs::TaskSet> read_task_set(const RunConfig& config);

// kUnfit where this machine lacks something that tasks of the set need, naming them.
Status check_machine(const RunConfig& config, const envs::TaskSet& set);

// Writes RUN/tasks.json.
Status record_tasks(const RunConfig& config, const envs::TaskSet& set, const fs::path& run_dir);

// The set as it was when the run began; kInvalid, naming the first difference, where it is not that any more.
Result<envs::TaskSet> read_recorded_tasks(const RunConfig& config, const fs::path& run_dir);

// The held-out tasks of a run in the order in which the books admit them; of the workspace family where `tasks` is
// empty.
std::vector<envs::TaskSpec> heldout_specs(const RunConfig& config, const std::optional<envs::TaskSet>& tasks);

// "the workspace family: echo, lookup; of env.external: guess".
std::string describe_kinds(const RunConfig& config);

// "12 tasks of tasks/: 9 train, 3 held out; strings 7, files 5".
std::string describe(const RunConfig& config, const envs::TaskSet& set);

}  // namespace tandem::run
