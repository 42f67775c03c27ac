// The bases of tasks (envs/tasks/task_base.h), unpacked before anything waits for an episode.
#pragma once

#include <span>

#include "envs/tasks/task.h"

namespace tandem::cli {

// Says which one is unpacked, and how long it took. An error names the task.
Status prepare_bases(std::span<const envs::Task> tasks);

}  // namespace tandem::cli
