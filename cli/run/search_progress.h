// run::prepare_search with its progress shown, for commands that play tasks.
#pragma once

#include <span>

#include "envs/tasks/task.h"
#include "run/search.h"

namespace tandem::cli {

Status prepare_search(const fs::path& encoder, std::span<const envs::Task> tasks, const fs::path& folder);

}  // namespace tandem::cli
