// Tools of foreign servers of the Model Context Protocol: the configured servers, and decoders of their tool lists and
// results, which are untrusted bytes.
//
// A tool is offered to the model as SERVER__TOOL. Values; pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

inline constexpr size_t kMostMcpServers = 8;
inline constexpr size_t kMostForeignTools = 128;                // of one server
inline constexpr size_t kMostForeignBytes = size_t{256} << 10;  // of names, descriptions and schemas of one server
inline constexpr std::string_view kForeignMark = "__";          // between server and tool

// A program that speaks the protocol over its standard input and output, to be run in a sandbox.
struct McpServerSpec {
  std::string name;     // 1 to 32 small letters, digits and dashes
  std::string command;  // for bash, in the workspace
  friend bool operator==(const McpServerSpec&, const McpServerSpec&) = default;
};

// "NAME=COMMAND" each. kInvalid, naming the entry, where one is not that, and for doubled names.
Result<std::vector<McpServerSpec>> parse_mcp_servers(std::span<const std::string> entries);
// kInvalid where the name is none, one is there twice, a command is empty, or there are more than kMostMcpServers.
Status check_mcp_servers(std::span<const McpServerSpec> servers);

struct ForeignTool {
  std::string name;  // SERVER__TOOL
  std::string tool;  // as its server knows it
  std::string description;
  Json parameters;  // JSON Schema of an object
};

// The OpenAI array of them, as tool_schemas gives it.
Json tool_schemas(std::span<const ForeignTool> tools);

// The result of tools/list, one page of it, behind `tools`; a tool that cannot be offered is told in `left_out`, with
// the reason. kInvalid, naming what is wrong, for what is no such result and for more than is taken; the cursor of the
// next page where there is one.
Result<std::optional<std::string>> read_foreign_tools(std::string_view server, const Json& result,
                                                      std::vector<ForeignTool>& tools,
                                                      std::vector<std::string>& left_out);

// The result of tools/call as an outcome: its texts; that there is something else, in words. kInvalid for what is no
// such result.
Result<ToolOutcome> read_foreign_outcome(const Json& result);

}  // namespace tandem::envs
