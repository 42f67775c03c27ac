#include "cli/agent/workspace.h"

#include <fmt/format.h>

#include <cstdio>

#include "envs/container/engine.h"

namespace tandem::cli {

void add_workspace_options(CLI::App& command, WorkspaceOptions& options) {
  command.add_option("--workspace", options.folder, "The folder to work in; /workspace inside")->required();
  command
      .add_option("--image", options.image,
                  "Work with the programs of this image of podman or Docker in place of this machine's; "
                  "TANDEM__ENV__ENGINE may name the engine's socket")
      ->type_name("IMAGE");
  command.add_option("--time-limit", options.time_limit_s, "Seconds after which a command is ended")
      ->check(CLI::Range(0.01, 86'400.0))
      ->capture_default_str();
  command
      .add_option("--network", options.network,
                  "Open these hosts, through a proxy: HOST, *.SUFFIX or an address, with :PORT where it is not 80 or "
                  "443; commas between them. None by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST,...");
  add_package_options(command, options.packages);
}

void add_output_option(CLI::App& command, WorkspaceOptions& options) {
  command
      .add_option("--output-bytes", options.output_bytes,
                  "Most bytes of a result; of a longer one the beginning and the end are kept")
      ->check(CLI::Range(size_t{200}, envs::SandboxSpec().output_limit))
      ->capture_default_str();
}

void add_server_option(CLI::App& command, WorkspaceOptions& options) {
  command
      .add_option("--mcp-server", options.servers,
                  "Run this server of the Model Context Protocol in the sandbox and offer its tools as NAME__TOOL; may "
                  "be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=COMMAND");
}

Result<std::vector<envs::McpServerSpec>> servers_of(const WorkspaceOptions& options) {
  auto servers = envs::parse_mcp_servers(options.servers);
  if (!servers) return fail(std::move(servers).error().at("--mcp-server"));
  return servers;
}

Result<envs::SandboxSpec> sandbox_of(const WorkspaceOptions& options) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(options.folder, error);
  if (error || !std::filesystem::is_directory(folder)) {
    return fail(Status::invalid("--workspace: \"" + options.folder + "\" is not a folder"));
  }
  envs::SandboxSpec spec;
  spec.workspace = folder;
  if (!options.image.empty()) {
    if (Status status = envs::check_image_name(options.image); !status) return fail(std::move(status).at("--image"));
    spec.image = envs::SandboxImage{.name = options.image, .begins_with_files = false};  // it is the folder's
  }
  spec.call_time_limit_s = options.time_limit_s;
  spec.output_limit = options.output_bytes;
  auto network = envs::AllowList::parse(options.network);
  if (!network) return fail(std::move(network).error().at("--network"));
  spec.network = std::move(*network);
  const auto packages = TRY(packages_of(options.packages, options.time_limit_s));
  if (packages && !packages->setup().empty())
    return fail(
        Status::invalid("env.packages.install is what tasks begin with; here a command installs it").at("--packages"));
  spec.packages = packages;
  spec.on_network = [](const envs::NetworkUse& use) { fmt::print(stderr, "network: {}\n", envs::to_string(use)); };
  return spec;
}

}  // namespace tandem::cli
