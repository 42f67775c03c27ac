// `tandem tools`: the agent's tools from a shell.
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "envs/sandbox/host_backend.h"
#include "envs/sandbox/namespace_backend.h"
#include "envs/tools/tool.h"

namespace tandem::cli {
namespace {

struct CallOptions {
  std::string name, arguments = "{}", workspace;
  bool no_sandbox = false, raw = false;
  double time_limit_s = 120;
};

Result<int> call_tool(const CallOptions& options) {
  const auto arguments = parse_json(options.arguments);
  if (!arguments) return fail(Status(arguments.error()).at("arguments"));
  std::error_code error;
  const auto workspace = std::filesystem::canonical(options.workspace, error);
  if (error || !std::filesystem::is_directory(workspace)) {
    return fail(Status::invalid("--workspace: \"" + options.workspace + "\" is not a folder"));
  }
  envs::SandboxSpec spec;
  spec.workspace = workspace;
  spec.call_time_limit_s = options.time_limit_s;
  std::unique_ptr<envs::SandboxBackend> backend;
  if (options.no_sandbox) {
    backend = std::make_unique<envs::HostBackend>();
  } else {
    backend = TRY(envs::NamespaceBackend::start());
  }
  auto sandbox = TRY(backend->create(spec));
  const auto outcome = TRY(sandbox->call(options.name, *arguments));
  if (options.raw) {
    fwrite(outcome.output.data(), 1, outcome.output.size(), stdout);
  } else {
    const Json line = {{"ok", outcome.ok},
                       {"output", outcome.output},
                       {"exit_code", outcome.exit_code},
                       {"truncated", outcome.truncated},
                       {"seconds", outcome.seconds}};
    puts(dump_json(line).c_str());
  }
  return outcome.ok ? kDone : kFailed;
}

}  // namespace

Action add_tools(CLI::App& command) {
  command.require_subcommand(1);
  auto* schema = command.add_subcommand("schema", "Print the tools as an OpenAI tools array");
  auto* call = command.add_subcommand("call", "Run one call, in a sandbox, and print its outcome as JSON");
  const auto options = std::make_shared<CallOptions>();
  call->add_option("NAME", options->name, "The tool")->required();
  call->add_option("JSON", options->arguments, "Its arguments, a JSON object")->required();
  call->add_option("--workspace", options->workspace, "The folder to work in; /workspace inside")->required();
  call->add_flag("--no-sandbox", options->no_sandbox, "Run on this machine without isolation");
  call->add_flag("--raw", options->raw, "Print the bare output as the model sees it");
  call->add_option("--time-limit", options->time_limit_s, "Seconds after which a command is ended")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [schema, options]() -> Result<int> {
    if (schema->parsed()) {
      puts(envs::tool_schemas().dump(2).c_str());
      return kDone;
    }
    return call_tool(*options);
  };
}

}  // namespace tandem::cli
