// Whether code of a check is still what the task brought when its tests have ended: what is tested runs beside it, and
// may have written a test that passes in its place. What it changes and changes back is not noticed.
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "envs/tasks/task.h"

namespace tandem::envs {

// A command, to be run behind all others, that prints what changed_test reads. Empty where the check brings no code, or
// says itself that it edits some in place.
std::string compare_tests_command(const CommandCheck& check);

// The first file that is not as the task brought it; empty where all are.
std::string changed_test(std::string_view printed);

}  // namespace tandem::envs
