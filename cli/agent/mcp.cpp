// `tandem mcp`: the agent's tools over the Model Context Protocol.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/json_line.h"
#include "cli/agent/offered_tools.h"
#include "cli/agent/search_options.h"
#include "cli/agent/workspace.h"
#include "cli/command.h"
#include "envs/backends/backends.h"
#include "envs/mcp_server/mcp_http.h"
#include "envs/mcp_server/mcp_stdio.h"
#include "envs/search/searching_backend.h"

namespace tandem::cli {
namespace {

constexpr const char* kTokenVariable = "TANDEM_MCP_TOKEN";

struct McpOptions {
  WorkspaceOptions workspace;
  SearchOptions search;
  std::vector<std::string> tools;
  std::string http, token;
  int sessions = 16;
  double idle_minutes = 30;
  bool json = false;
};

std::atomic<bool> stop_requested{false};
void on_signal(int number) {
  stop_requested = true;
  std::signal(number, SIG_DFL);  // a second one ends everything at once
}

// "8080", "0.0.0.0:8080", "localhost:8080" or "[::1]:8080".
Result<envs::McpHttpSettings> parse_address(const std::string& text) {
  envs::McpHttpSettings settings;
  const auto colon = text.rfind(':');
  if (colon != std::string::npos) settings.address = text.substr(0, colon);
  if (settings.address == "localhost") settings.address = "127.0.0.1";
  if (settings.address.starts_with('[') && settings.address.ends_with(']')) {
    settings.address = settings.address.substr(1, settings.address.size() - 2);
  }
  const char* port = text.c_str() + (colon == std::string::npos ? 0 : colon + 1);
  const char* end = text.c_str() + text.size();
  const auto [stopped, error] = std::from_chars(port, end, settings.port);
  if (port == end || stopped != end || error != std::errc()) {
    return fail(Status::invalid(fmt::format("--http: \"{}\" is not [HOST:]PORT, such as 8080 or 0.0.0.0:8080", text)));
  }
  return settings;
}

Result<int> serve_http(const McpOptions& options, const envs::McpServing& serving) {
  auto settings = TRY(parse_address(options.http));
  settings.token = options.token;
  if (const char* variable = std::getenv(kTokenVariable); settings.token.empty() && variable) settings.token = variable;
  const bool drawn = settings.token.empty();
  if (drawn) settings.token = envs::random_token();
  settings.sessions = static_cast<size_t>(options.sessions);
  settings.idle = from_seconds(options.idle_minutes * 60);
  const std::string token = settings.token;
  const SystemClock clock;
  auto server = envs::McpHttp::listen(std::move(settings), serving, clock);
  if (!server) return fail(std::move(server).error().at("--http"));
  if (options.json) {
    fmt::print("{}\n", dump_json_line(Json{{"url", server->url()}, {"token", drawn ? Json(token) : Json()}}));
  } else {
    fmt::print("{}\n", server->url());
    if (drawn) fmt::print("Authorization: Bearer {}\n", token);
  }
  std::fflush(stdout);
  TRY(server->serve(stop_requested));
  return kDone;
}

Result<int> serve_mcp(const McpOptions& options) {
  envs::McpServing serving;
  serving.spec = TRY(sandbox_of(options.workspace));
  const auto usual = envs::tool_names(options.search.given() ? envs::WithSearch::kYes : envs::WithSearch::kNo);
  serving.spec.tools = TRY(offered_tools(options.tools, options.search.given(), usual));
  serving.version = TANDEM_VERSION;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);  // who does not read any more is seen where it is written to
  const auto backend = TRY(envs::start_sandboxes());
  // What stands in the way of sandboxes is said now, to a person, and not to the model that makes the first call.
  TRY(backend->create(serving.spec));
  serving.backend = backend.get();
  const auto searcher = TRY(searcher_of(options.search, *serving.spec.workspace));
  std::unique_ptr<envs::SearchingBackend> searching;
  if (searcher) {
    searching = std::make_unique<envs::SearchingBackend>(*backend, *searcher);
    serving.backend = searching.get();
  }
  if (!options.http.empty()) return serve_http(options, serving);
  TRY(envs::serve_mcp_stdio(serving, STDIN_FILENO, STDOUT_FILENO, stop_requested));
  return kDone;
}

}  // namespace

Action add_mcp(CLI::App& command) {
  const auto options = std::make_shared<McpOptions>();
  add_workspace_options(command, options->workspace);
  add_output_option(command, options->workspace);
  add_tools_option(command, options->tools);
  add_search_options(command, options->search);
  auto* http = command.add_option("--http", options->http,
                                  "Serve streamable HTTP at [HOST:]PORT in place of stdin and stdout; port 0: any that "
                                  "is free");
  command
      .add_option(
          "--token", options->token,
          fmt::format("Bearer token of clients; by default {}, or a random one that is printed", kTokenVariable))
      ->needs(http);
  command.add_option("--sessions", options->sessions, "Most clients at once")
      ->needs(http)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--idle-minutes", options->idle_minutes, "Minutes after which an idle client is disconnected")
      ->needs(http)
      ->check(CLI::Range(0.01, 525'600.0))
      ->capture_default_str();
  command.add_flag("--json", options->json, "Print {url, token}")->needs(http);
  command.footer(
      "Protocol revisions 2025-11-25, 2025-06-18 and 2025-03-26, and over standard input and output 2026-07-28. Every "
      "client has a sandbox of its own, with the "
      "folder\n"
      "in it: what its shell keeps lasts as long as the client. Calls are those of `tandem tools call`, word for "
      "word.\n"
      "Ctrl-C, or the end of stdin, ends it and all that it started.\n\n"
      "Examples:\n"
      "  tandem mcp --workspace .\n"
      "  tandem mcp --workspace ~/project --time-limit 600 --output-bytes 30000\n"
      "  tandem mcp --workspace . --encoder models/all-MiniLM-L6-v2\n"
      "  tandem mcp --workspace . --tools bash,str_replace_based_edit_tool\n"
      "  TANDEM_MCP_TOKEN=$(cat token) tandem mcp --workspace . --http 8080\n\n"
      "For a client that starts its servers (Claude Desktop, Cursor, ...):\n"
      "  {\"mcpServers\": {\"tandem\": {\"command\": \"tandem\", \"args\": [\"mcp\", \"--workspace\", "
      "\"/path/to/project\"]}}}");
  return [options] { return serve_mcp(*options); };
}

}  // namespace tandem::cli
