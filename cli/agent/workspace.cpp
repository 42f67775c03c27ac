#include "cli/agent/workspace.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "envs/container/engine.h"
#include "envs/packages/cache.h"

namespace tandem::cli {

void add_workspace_options(CLI::App& command, WorkspaceOptions& options) {
  command.add_option("--workspace", options.folder, "The folder to work in; /workspace inside")->required();
  command
      .add_option("--image", options.image,
                  "Work with the programs of this image of podman or Docker in place of this machine's; "
                  "TANDEM__ENV__ENGINE may name the engine's socket")
      ->type_name("IMAGE");
  command.add_option("--time-limit", options.time_limit_s, "Seconds after which a command is ended")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--network", options.network,
                  "Open these hosts, through a proxy: HOST, *.SUFFIX or an address, with :PORT where it is not 80 or "
                  "443; commas between them. None by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST,...");
  command
      .add_option("--packages", options.packages,
                  "Open these registries of packages, of which files are kept on this machine: pypi, npm, debian, each "
                  "with =URL or, without, the one of this machine's pip, npm or apt. None by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[=URL],...");
  command
      .add_option("--packages-lock", options.packages_lock,
                  "A packages.lock that a run has written: nothing outside it can be installed")
      ->type_name("FILE");
}

namespace {

Result<envs::PackageSettings> packages_of(const WorkspaceOptions& options) {
  envs::PackageSettings settings;
  for (const auto& one : options.packages) {
    const size_t equals = one.find('=');
    const auto name = one.substr(0, equals);
    auto* const target = name == "pypi"     ? &settings.pypi
                         : name == "npm"    ? &settings.npm
                         : name == "debian" ? &settings.debian
                                            : nullptr;
    if (target == nullptr)
      return fail(
          Status::invalid(fmt::format("\"{}\" is no registry{}", name, did_you_mean(name, {"pypi", "npm", "debian"})))
              .at("--packages"));
    *target = equals == std::string::npos ? "auto" : one.substr(equals + 1);
  }
  settings.lock = options.packages_lock;
  if (const auto mistakes = envs::package_mistakes(settings, options.time_limit_s); !mistakes.empty())
    return fail(Status::invalid(join(mistakes, "\n")).at("--packages"));
  return settings;
}

}  // namespace

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
  auto network = envs::AllowList::parse(options.network);
  if (!network) return fail(std::move(network).error().at("--network"));
  spec.network = std::move(*network);
  spec.packages =
      TRY(envs::PackageCache::open({.settings = TRY(packages_of(options)), .call_seconds = options.time_limit_s}));
  spec.on_network = [](const envs::NetworkUse& use) { fmt::print(stderr, "network: {}\n", envs::to_string(use)); };
  return spec;
}

}  // namespace tandem::cli
