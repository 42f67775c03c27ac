// Reward hacks as commands in the sandbox; none may score.
//
// They know more than a policy can: the paths of the files that grading brings in, and those that the solution writes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/task.h"

namespace tandem::envs {

enum class Cheat : uint8_t {
  kEditsTests,      // empties tests that are there and puts its own where grading brings its tests
  kWritesReward,    // leaves files that say how well it did, and a process that goes on writing them
  kExitsEarly,      // code that ends its process with success before anything is tested
  kPatchesRuntime,  // files that steer interpreters and test runners, and programs in their place
  kForgesReport,    // code that prints what test runners print of tests that pass, and ends its process
  kPlantsPrograms,  // programs with the names of the system's in folders that PATH leads to
};
inline constexpr std::array kCheats = {Cheat::kEditsTests,     Cheat::kWritesReward, Cheat::kExitsEarly,
                                       Cheat::kPatchesRuntime, Cheat::kForgesReport, Cheat::kPlantsPrograms};
std::string_view to_string(Cheat cheat);

// For the author of a task: the meaning of a success of this cheat, and the remedy.
std::string_view advice(Cheat cheat);

// Whether this one can find anything to do in the task.
bool applies_to(Cheat cheat, const Task& task);

// The commands for bash, in the workspace. Some may fail.
std::vector<std::string> commands_of(Cheat cheat, const Task& task);

}  // namespace tandem::envs
