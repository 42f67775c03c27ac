// HumanEvalPack's bug-fixing tasks, from its JSON Lines: a function with a bug, judged by the tests of the data set.
//
// The model meets the buggy file, what the function should do, and the examples where the line has some; never the
// tests. Python is judged by CallCheck. C++ is compiled in two parts: the file left behind, and the tests, whose own
// assertions end the program and which print a word at their end that stands nowhere else.
#pragma once

#include <vector>

#include "base/file.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// The tasks of the file, one a line; lines of other languages than Python and C++, and whatever else is wrong, are
// added to `mistakes`.
std::vector<Task> read_humanevalpack(const fs::path& file, Mistakes& mistakes);

}  // namespace tandem::envs
