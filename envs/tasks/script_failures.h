// What went wrong in a script that grades, by what shells, Python and programs that start others print: then what it
// left is no verdict. What is tested prints too, and may print whatever it likes: only what the check itself calls
// counts.
//
// Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "envs/tasks/task.h"

namespace tandem::envs {

// The first program that is said in `output` to be not there, that the check calls, and that `counts`; empty where
// there is none. It may be a module that Python is asked to run.
std::string missing_program(const CommandCheck& check, std::string_view output,
                            const std::function<bool(const std::string&)>& counts);

// Whether bash stumbles over line ends of Windows in a script of this check.
bool has_windows_lines(const CommandCheck& check);

// Other failures of a test script itself, in words that follow its name: line ends of Windows in a script that it runs,
// a script that is no program. Empty where nothing did.
std::string failure_of_script(const CommandCheck& check, std::string_view output);

}  // namespace tandem::envs
