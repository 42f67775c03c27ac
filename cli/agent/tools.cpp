// `tandem tools`: the agent's tools from a shell.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/agent/offered_tools.h"
#include "cli/agent/search_options.h"
#include "cli/agent/workspace.h"
#include "cli/command.h"
#include "envs/backends/backends.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/host_backend.h"
#include "envs/search/searching_backend.h"
#include "envs/tools/tool.h"

namespace tandem::cli {
namespace {

struct CallOptions {
  std::string name, arguments = "{}";
  WorkspaceOptions workspace;
  SearchOptions search;
  std::vector<std::string> tools;
  bool no_sandbox = false, raw = false;
};

Result<int> call_tool(const CallOptions& options) {
  const auto arguments = parse_json(options.arguments);
  if (!arguments) return fail(Status(arguments.error()).at("arguments"));
  auto spec = TRY(sandbox_of(options.workspace));
  const auto servers = TRY(servers_of(options.workspace));
  spec.tools =
      TRY(offered_tools(options.tools, options.search.given(),
                        envs::tool_names(options.search.given() ? envs::WithSearch::kYes : envs::WithSearch::kNo)));
  std::unique_ptr<envs::SandboxBackend> backend;
  if (options.no_sandbox) {
    backend = std::make_unique<envs::HostBackend>();
  } else {
    backend = TRY(envs::start_sandboxes());
  }
  const auto searcher = TRY(searcher_of(options.search, *spec.workspace));
  std::unique_ptr<envs::SearchingBackend> searching;
  if (searcher) searching = std::make_unique<envs::SearchingBackend>(*backend, *searcher);
  auto sandbox = TRY(searching ? searching->create(spec) : backend->create(spec));
  TRY(start_servers(*sandbox, servers));
  const auto outcome = TRY(sandbox->call(options.name, *arguments));
  if (options.raw) {
    fwrite(outcome.output.data(), 1, outcome.output.size(), stdout);
  } else {
    const Json line = {{"ok", outcome.ok},
                       {"output", outcome.output},
                       {"exit_code", outcome.exit_code},
                       {"truncated", outcome.truncated},
                       {"seconds", outcome.seconds}};
    puts(dump_json_line(line).c_str());
  }
  return outcome.ok ? kDone : kFailed;
}

// "read_file{target_file, offset?, limit?}": the parameters, those that may be left out with a question mark.
std::string signature(const std::string& name, const Json& parameters) {
  const auto& required = parameters.at("required");
  std::vector<std::string> names;
  for (const auto& [parameter, schema] : parameters.at("properties").items()) {
    const bool needed = std::find(required.begin(), required.end(), Json(parameter)) != required.end();
    names.push_back(parameter + (needed ? "" : "?"));
  }
  return name + "{" + join(names, ", ") + "}";
}

// What there is with these options: codebase_search with an encoder alone.
Result<envs::WithSearch> with_search(const std::string& encoder) {
  if (encoder.empty()) return envs::WithSearch::kNo;
  const auto config = model::read_encoder_config(encoder);
  if (!config) return fail(Status(config.error()).at("--encoder"));
  return envs::WithSearch::kYes;
}

// The usual tools and behind them those that only a list offers; or one with what each of its parameters means.
Result<int> list_tools(const std::string& only, envs::WithSearch search) {
  const auto usual = envs::tool_names(search);
  std::vector<std::string> names = usual;
  for (const auto& tool : envs::every_tool()) {
    if (tool.name != envs::kSearchTool && std::find(usual.begin(), usual.end(), tool.name) == usual.end())
      names.emplace_back(tool.name);
  }
  if (!only.empty() && std::find(names.begin(), names.end(), only) == names.end()) {
    const std::vector<std::string_view> known(names.begin(), names.end());
    return fail(Status::invalid("there is no tool \"" + only + "\"" + did_you_mean(only, known)));
  }
  bool told = false;
  for (const auto& schema : envs::tool_schemas(names)) {
    const auto& function = schema.at("function");
    const auto name = function.at("name").get<std::string>();
    if (only.empty() && !told && std::find(usual.begin(), usual.end(), name) == usual.end()) {
      told = true;
      printf("\nFor the habits of other agents, offered only where --tools (or env.tools of a run) names them:\n\n");
    }
    if (!only.empty() && name != only) continue;
    const auto& parameters = function.at("parameters");
    printf("%s\n", signature(name, parameters).c_str());
    for (const auto line : split(function.at("description").get_ref<const std::string&>(), '\n')) {
      printf("    %.*s\n", static_cast<int>(line.size()), line.data());
    }
    if (only.empty()) continue;
    for (const auto& [parameter, property] : parameters.at("properties").items()) {
      printf("  %-18s %-8s %s\n", parameter.c_str(), property.at("type").get<std::string>().c_str(),
             property.value("description", "").c_str());
    }
  }
  return kDone;
}

}  // namespace

Action add_tools(CLI::App& command) {
  command.require_subcommand(1);
  command.footer(
      "Example:\n"
      "  tandem tools list read_lints\n"
      "  tandem tools call grep '{\"pattern\": \"TODO\", \"glob\": \"*.py\"}' --workspace . --raw");
  auto* list = command.add_subcommand("list", "Print the tools and their parameters for people");
  const auto only = std::make_shared<std::string>();
  list->add_option("NAME", *only, "One tool, with the meaning of its parameters; all by default");
  list->footer("Example:\n  tandem tools list\n  tandem tools list apply_patch");
  auto* schema = command.add_subcommand("schema", "Print the tools as an OpenAI tools array");
  const auto encoder = std::make_shared<std::string>();
  const auto names = std::make_shared<std::vector<std::string>>();
  add_tools_option(*schema, *names);
  for (auto* one : {list, schema})
    one->add_option("--encoder", *encoder, "Include codebase_search, as with this sentence encoder");
  schema->footer("Example:\n  tandem tools schema --tools bash,str_replace_based_edit_tool");
  auto* call = command.add_subcommand("call", "Run one call, in a sandbox, and print its outcome as JSON");
  const auto options = std::make_shared<CallOptions>();
  call->add_option("NAME", options->name, "The tool")->required();
  call->add_option("JSON", options->arguments, "Its arguments, a JSON object")->required();
  add_workspace_options(*call, options->workspace);
  add_output_option(*call, options->workspace);
  add_server_option(*call, options->workspace);
  add_tools_option(*call, options->tools);
  add_search_options(*call, options->search);
  call->add_flag("--no-sandbox", options->no_sandbox, "Run on this machine without isolation");
  call->add_flag("--raw", options->raw, "Print the bare output as the model sees it");
  call->footer(
      "A sandbox is made for the one call: what a tool keeps from call to call (the shell's folder and variables, the\n"
      "list of todos) ends with it. Exit code 0: the call ran; 1: the tool refused it; 3: no sandbox can be had.\n\n"
      "Example:\n"
      "  tandem tools call read_file '{\"target_file\": \"README.md\", \"limit\": 20}' --workspace . --raw\n"
      "  tandem tools call run_terminal_cmd '{\"command\": \"make test\"}' --workspace . --time-limit 300\n"
      "  tandem tools call glob_file_search '{\"glob_pattern\": \"src/**/*.{h,cpp}\"}' --workspace .\n"
      "  tandem tools call read_lints '{\"paths\": [\"src\"]}' --workspace . --raw\n"
      "  tandem tools call delete_file '{\"target_file\": \"old.txt\"}' --workspace .\n"
      "  tandem tools call codebase_search '{\"query\": \"Where are sessions refreshed?\"}' --workspace . \\\n"
      "      --encoder models/all-MiniLM-L6-v2 --raw\n"
      "  tandem tools call bash '{\"command\": \"make\"}' --tools bash --workspace .\n"
      "  tandem tools call weather__today '{\"city\": \"Oslo\"}' --workspace . \\\n"
      "      --mcp-server 'weather=python3 weather.py'\n"
      "  tandem tools call apply_patch \"$(jq -Rs '{input: .}' change.patch)\" --workspace .");
  return [list, only, schema, names, encoder, options]() -> Result<int> {
    if (list->parsed()) return list_tools(*only, TRY(with_search(*encoder)));
    if (schema->parsed()) {
      const auto offered = TRY(offered_tools(*names, !encoder->empty(), envs::tool_names(TRY(with_search(*encoder)))));
      puts(envs::tool_schemas(offered).dump(2).c_str());
      return kDone;
    }
    return call_tool(*options);
  };
}

}  // namespace tandem::cli
