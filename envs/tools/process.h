// Runs one program with a time limit, its output bounded while it streams.
//
// The program gets a session of its own, no input unless there is one in the spec, and nothing of our environment. When
// it ends, or its time is up, its whole process group is killed. A program that moves to another session outlives this;
// inside a sandbox the first process sees to that.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0] is a path
  std::filesystem::path directory;
  std::vector<std::string> environment;
  double time_limit_s = 120;
  size_t output_limit = size_t{1} << 20;
  std::string input = {};     // what the program can read; empty: /dev/null
  bool errors_apart = false;  // standard error is kept by itself, within a limit of its own of the same size
};

struct ProcessResult {
  int exit_code = 0;  // 128 + N after signal N, 124 after the time limit
  bool timed_out = false;
  bool truncated = false;
  std::string output;  // standard output and error as they came
  std::string errors;  // standard error, where it is kept apart
};

// An error only where the program could not be started.
Result<ProcessResult> run_process(const ProcessSpec& spec);

// Starts the program and leaves it; its output goes nowhere. The process id.
Result<int> start_process(const ProcessSpec& spec);
// The same with its input and output at `socket`, and its errors in `errors`.
Result<int> start_process(const ProcessSpec& spec, int socket, int errors);

// The first of "/usr/local/bin", "/usr/bin", "/bin" that has a program of this name; empty where none has.
std::string find_program(std::string_view name);

}  // namespace tandem::envs
