// A folder of this machine that tools work in.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/package_options.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::cli {

struct WorkspaceOptions {
  std::string folder;
  std::string image;  // of a container engine; empty: the programs of this machine
  double time_limit_s = 120;
  size_t output_bytes = envs::SandboxSpec().output_limit;  // of a call's result that are kept
  std::vector<std::string> network;                        // hosts that are open
  PackageOptions packages;
  std::vector<std::string> servers;  // of tools, NAME=COMMAND each
};

// --workspace, --image, --time-limit, --network and those of packages.
void add_workspace_options(CLI::App& command, WorkspaceOptions& options);
// --output-bytes.
void add_output_option(CLI::App& command, WorkspaceOptions& options);
// --mcp-server NAME=COMMAND.
void add_server_option(CLI::App& command, WorkspaceOptions& options);
// kInvalid where one of them is none.
Result<std::vector<envs::McpServerSpec>> servers_of(const WorkspaceOptions& options);

// The sandbox that has the folder as its workspace, read and write; each request to the network is told on stderr.
// kInvalid where it is no folder, or a host or the image is none.
Result<envs::SandboxSpec> sandbox_of(const WorkspaceOptions& options);

}  // namespace tandem::cli
