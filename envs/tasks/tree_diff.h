// The size of the difference between what an attempt began with and what it left behind, as a reviewer counts it.
//
// A function of the trees, and of the base's files where a task has one. Nothing in what was left behind is trusted:
// time and memory are bounded, and where a bound was met the figures say so. Thread safety: any.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "envs/sandbox/sandbox.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct TreeDiff {
  uint64_t files = 0;                           // new, gone or of other content; one that was moved is two of them
  uint64_t binary_files = 0;                    // those of them that are no text, of which no lines are counted
  uint64_t lines_added = 0, lines_removed = 0;  // as `git diff` counts them
  bool at_least = false;                        // more was changed than was counted

  std::set<std::string> texts;    // those of the files that are there now, and are text
  std::set<std::string> touched;  // those that were there before
};

// `begun` is the task's tree as the attempt began, of a task with a base its changes against that, and so is `left`.
//
// Not counted are files of folders of version control and of caches (__pycache__ and the like), and what git ignores by
// the .gitignore files that the attempt began with, unless the task itself brings it. Of bits of the mode and of empty
// folders nothing is said. What `left` lacks because it is not complete is not taken for removed.
TreeDiff tree_diff(const Task& task, const Collected& begun, const Collected& left);

}  // namespace tandem::envs
