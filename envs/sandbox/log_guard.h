// Keeps the log of a program that runs in a sandbox for long from growing without end. Private to envs/sandbox.
//
// The program writes its log itself, so that what it wrote is there at once; a process beside it cuts the log.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace tandem::envs {

inline constexpr off_t kLargestLog = 2 << 20;  // bytes, beyond which a log is cut
inline constexpr off_t kKeptOfLog = 1 << 20;   // bytes of its end that stay then, behind a line that says so

// Forks a process that cuts `log`, which `program` writes with O_APPEND, until `program` ends. The caller has one
// thread and has not waited for `program`. The new process keeps none of the caller's descriptors but its standard
// streams.
Status guard_log(const std::string& log, pid_t program);

}  // namespace tandem::envs
