// Problems that linters find in what an episode left behind and did not find in what it began with.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "envs/sandbox/sandbox.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Counts new problems in files that are new or changed, by read_lints in a fresh sandbox of `backend`. A problem that
// only moved to another line is no new one. 0 where no linter is known for any of them.
Result<int> count_new_lints(const Files& before, const Files& after, SandboxBackend& backend, SandboxHolder holder);

struct NewLints {
  uint64_t count = 0;
  uint64_t files = 0;     // that a linter looked at, before and after
  bool at_least = false;  // not all could be looked at, in time or in full
  friend bool operator==(const NewLints&, const NewLints&) = default;
};

// The same of `changed`, texts that are new or other in `left` than in `begun`: problems in these files alone, with the
// trees around them. Nothing where no linter looked at any. Of a task with a base the trees are changes against that.
// Looks at 100 files, for a minute in each tree.
Result<std::optional<NewLints>> new_lints(const Task& task, const Collected& begun, const Collected& left,
                                          const std::set<std::string>& changed, SandboxBackend& backend,
                                          SandboxHolder holder);

// The problems that a report of read_lints lists, without their lines and columns, sorted. Lines that a message names
// are left out, too.
std::vector<std::string> problems_in(std::string_view report);

}  // namespace tandem::envs
