#include "cli/workspace.h"

namespace tandem::cli {

void add_workspace_options(CLI::App& command, WorkspaceOptions& options) {
  command.add_option("--workspace", options.folder, "The folder to work in; /workspace inside")->required();
  command.add_option("--time-limit", options.time_limit_s, "Seconds after which a command is ended")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

Result<envs::SandboxSpec> sandbox_of(const WorkspaceOptions& options) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(options.folder, error);
  if (error || !std::filesystem::is_directory(folder)) {
    return fail(Status::invalid("--workspace: \"" + options.folder + "\" is not a folder"));
  }
  envs::SandboxSpec spec;
  spec.workspace = folder;
  spec.call_time_limit_s = options.time_limit_s;
  return spec;
}

}  // namespace tandem::cli
