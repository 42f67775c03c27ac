// One subcommand of `tandem`: its flags, and what it does.
//
// Each cli/NAME.cpp declares its flags on the CLI::App it is given and returns what to run. Exit codes are those of
// ExitCode; results go to stdout, everything else to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "base/exit_code.h"
#include "base/status.h"

namespace tandem::cli {

// Runs a subcommand once its flags are parsed; returns the exit code. A Status becomes a message on stderr and an exit
// code by its kind: kInvalid 2, kUnfit 3, everything else 1.
using Action = std::function<Result<int>()>;
using AddCommand = Action (*)(CLI::App& command);

struct Command {
  const char* name;
  const char* summary;
  AddCommand add;
};

// One line a command, in the order in which --help shows them.
std::span<const Command> commands();

int exit_code_of(const Status& status);

// The name of the program and its version.
std::string version_line();

// Keys of run, sft and eval: one environment may set them for all.
std::set<std::string> keys_of_all_configs();

}  // namespace tandem::cli
