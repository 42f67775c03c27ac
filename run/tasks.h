// The tasks of a run whose config names a set of them.
//
// RUN/tasks.json records the set as it was when the run began: the books need the same tasks until the run ends, over
// all interruptions.
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

// The content of RUN/tasks.json, {"path", "tasks"}. kInvalid where it is of another format.
inline constexpr int kTasksFormat = 1;
Result<Json> read_tasks_record(const fs::path& run_dir);
// Writes it.
Status record_tasks(const RunConfig& config, const envs::TaskSet& set, const fs::path& run_dir);

// Reads the set; kInvalid, naming the first difference, where it has changed since the run began.
Result<envs::TaskSet> read_recorded_tasks(const RunConfig& config, const fs::path& run_dir);

// The held-out tasks of a run in the order in which the books admit them; of the workspace family where `tasks` is
// empty.
std::vector<envs::TaskSpec> heldout_specs(const RunConfig& config, const std::optional<envs::TaskSet>& tasks);

// "the workspace family: echo, lookup; of env.external: guess".
std::string describe_kinds(const RunConfig& config);

// "12 tasks of tasks/: 9 train, 3 held out; strings 7, files 5".
std::string describe(const RunConfig& config, const envs::TaskSet& set);

}  // namespace tandem::run
