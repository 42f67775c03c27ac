// Problems that linters find in what an episode left behind and did not find in what it began with.
#pragma once

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

// Counts new problems in files that are new or changed, by read_lints in a fresh sandbox of `backend`. A problem that
// only moved to another line is no new one. 0 where no linter is known for any of them.
Result<int> count_new_lints(const Files& before, const Files& after, SandboxBackend& backend, SandboxHolder holder);

// The problems that a report of read_lints lists, without their lines and columns, sorted.
std::vector<std::string> problems_in(std::string_view report);

}  // namespace tandem::envs
