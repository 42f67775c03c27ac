// SWE-bench's tasks, from its JSON Lines: an issue of a repository, judged by the tests that came with its fix.
//
// Repositories are read from this machine: that of NAME.jsonl's "owner/name" is NAME.files/owner/name beside it, or
// NAME.files/owner__name, each bare (with .git at its end or without) or not; a `repo` that begins with "/" or "." is a
// path. The workspace is the tree at base_commit, without any history; the test patch is in the grading sandbox alone.
// docs/environments.md has the fields.
#pragma once

#include <vector>

#include "base/file.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Whether the first line of a file of JSON Lines is of this kind.
bool is_swe_bench(const fs::path& file);

// The tasks of the file, one a line; whatever is wrong with a line is added to `mistakes`.
std::vector<Task> read_swe_bench(const fs::path& file, Mistakes& mistakes);

}  // namespace tandem::envs
