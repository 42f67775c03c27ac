// A task in Harbor's form whose Dockerfile a test writes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {

inline const std::string kInApp = "FROM debian:12\nWORKDIR /app\n";

class Recipe : public SandboxTest {
 protected:
  Recipe() {
    scratch_.put("t/task.toml", "version = \"1.0\"\n");
    scratch_.put("t/instruction.md", "Do it.\n");
    scratch_.put("t/tests/test.sh", "cat /app/out > /logs/verifier/reward.txt\n");
    scratch_.put("t/solution/solve.sh", "echo 1 > /app/out\n");
  }
  Result<Task> task_of(const std::string& dockerfile) {
    scratch_.put("t/environment/Dockerfile", dockerfile);
    return only_task(scratch_.path / "t");
  }
  // What a command prints in an episode of the recipe.
  std::string run(const std::string& dockerfile, const std::string& command) {
    const auto task = task_of(dockerfile);
    if (!task) return task.error().message();
    auto episode = Episode::open(*task, *backend_);
    if (!episode) return episode.error().message();
    return (*episode)->call("run_terminal_cmd", {{"command", command}})->output;
  }
  Scratch scratch_;
};

}  // namespace tandem::envs
