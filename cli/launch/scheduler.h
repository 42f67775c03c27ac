// Schedulers by name, their programs, and how a job is handed to one.
//
// Thread safety: none needed.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace tandem::cli {

enum class Scheduler : unsigned char { kSlurm, kKubernetes, kRay, kLocal };

// kInvalid names the nearest, or all.
Result<Scheduler> scheduler_named(const std::string& name);

// The path of the program that hands jobs over; kUnfit with the line that installs it where it is not in PATH.
Result<std::string> program_of(Scheduler scheduler);

// Runs `argv` and returns its stdout. kUnavailable, with its stderr, where it failed; kDeadline after two minutes.
Result<std::string> hand_over(const std::vector<std::string>& argv);

}  // namespace tandem::cli
