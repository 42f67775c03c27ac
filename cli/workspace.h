// A folder of this machine that tools work in.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "envs/sandbox/sandbox.h"

namespace tandem::cli {

struct WorkspaceOptions {
  std::string folder;
  double time_limit_s = 120;
};

// --workspace and --time-limit.
void add_workspace_options(CLI::App& command, WorkspaceOptions& options);

// The sandbox that has the folder as its workspace, read and write. kInvalid where it is no folder.
Result<envs::SandboxSpec> sandbox_of(const WorkspaceOptions& options);

}  // namespace tandem::cli
