// Runs of a repository's own tests, to find out which of them pass.
//
// Thread safety: that of the backend.
#pragma once

#include <set>
#include <string>

#include "envs/episodes/episode.h"

namespace tandem::envs {

inline constexpr double kMostTestSeconds = 40;  // of one run; a check of a task may take no longer

struct TestRun {
  std::set<std::string> passed;  // by what pytest or unittest report; empty where the run did not come to its end
  std::string output;
  int exit_code = 0;
  bool is_out_of_time = false;
  double seconds = 0;
};

// Runs the command in a fresh sandbox that begins with `place`, for at most `seconds`. An error means that the sandbox
// failed.
Result<TestRun> run_tests(const Place& place, const std::string& command, SandboxBackend& backend,
                          double seconds = kMostTestSeconds);

// Time limit of a task for a command that took `slowest` seconds at most: longer, for busy machines.
double seconds_for_tests(double slowest);

// The last part of an output, for messages.
std::string end_of_output(const std::string& output);

}  // namespace tandem::envs
