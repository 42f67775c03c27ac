// Links, empty folders and modes that were left behind, as far as tests meet them.
//
// Pure functions.
#pragma once

#include "envs/tasks/task.h"

namespace tandem::envs {

// Without what lies at, around or below files of the check, or steers tests. A link stays where it says a place within
// the task's folders, or of the system's programs and libraries: one to what only tests bring along would hand their
// answers to whoever guessed the path. `roots` are the task's, as in SandboxSpec::links.
TreeDetails details_for_tests(TreeDetails left, const CommandCheck& check, const Links& roots);

}  // namespace tandem::envs
