// The one task of a set on disk, and an episode of it.
#pragma once

#include <gtest/gtest.h>

#include "envs/episodes/episode.h"
#include "envs/tasks/task_set.h"

namespace tandem::envs {

inline Result<Task> only_task(const std::filesystem::path& set_path) {
  const auto set = TaskSet::read(set_path);
  if (!set) return fail(set.error());
  return set->tasks()[0];
}

// Runs the commands one after the other, then grades what they left. `last_output` is what the last one printed.
inline Grade play_commands(const Task& task, SandboxBackend& backend, const std::vector<std::string>& commands,
                           std::string& last_output) {
  const auto episode = *Episode::open(task, backend);
  for (const auto& command : commands) last_output = episode->call("run_terminal_cmd", {{"command", command}})->output;
  const auto grade = episode->score("");
  EXPECT_TRUE(grade.has_value()) << grade.error().to_string();
  return grade.value_or(Grade{.reward = -1});
}

}  // namespace tandem::envs
