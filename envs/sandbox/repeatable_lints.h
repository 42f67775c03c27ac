// Whether what read_lints said is a function of the files it read, so that it can be said again without a run.
//
// Linters of one file at a time are: what they print follows from the workspace, the home folder and themselves, and
// they write nothing. Compilers are not, which read all of the machine and the time of day; nor are linters that a
// project names, which may be any program. Pure functions but for the second, which looks at this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace tandem::envs {

// Whether a call with these arguments may be answered so: not where it looks into git.
bool asks_for_repeatable_lints(const Json& arguments);

// Whether the report is of such linters alone, all of which came to their end.
bool is_repeatable_report(std::string_view report);

// The linters of this machine: which there are, and when they were installed. ExecAnswer at anew in each call.
std::string installed_linters();

}  // namespace tandem::envs
