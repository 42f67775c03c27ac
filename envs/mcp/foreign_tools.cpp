#include "envs/mcp/foreign_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kLongestServer = 32, kLongestTool = 64, kLongestCursor = 1024;

bool is_server_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestServer && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestTool && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

// A member that is text; empty where there is none.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Something that is no text, in a word.
std::string shown(const Json& item) {
  const auto kind = text_of(item, "type");
  if (kind == "text") return make_printable(text_of(item, "text"));
  if (kind == "resource" && item.contains("resource") && item.at("resource").is_object()) {
    const auto& resource = item.at("resource");
    if (const auto text = text_of(resource, "text"); !text.empty()) return make_printable(text);
  }
  return "[" + (kind.empty() ? "something that is not text" : make_printable(kind.substr(0, kLongestTool))) +
         ", which is not shown]";
}

}  // namespace

Status check_mcp_servers(std::span<const McpServerSpec> servers) {
  if (servers.size() > kMostMcpServers)
    return Status::invalid(fmt::format("{} servers are named; {} is the most", servers.size(), kMostMcpServers));
  std::set<std::string_view> names;
  for (const auto& server : servers) {
    if (!is_server_name(server.name))
      return Status::invalid(fmt::format("\"{}\" is no name of a server: 1 to {} small letters, digits and dashes",
                                         make_printable(server.name.substr(0, kLongestTool)), kLongestServer));
    if (trim(server.command).empty() || server.command.find('\0') != std::string::npos)
      return Status::invalid(fmt::format("{}: there is no command to start the server by", server.name));
    if (!names.insert(server.name).second)
      return Status::invalid(fmt::format("the server \"{}\" is named twice", server.name));
  }
  return {};
}

Result<std::vector<McpServerSpec>> parse_mcp_servers(std::span<const std::string> entries) {
  std::vector<McpServerSpec> servers;
  for (const auto& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos)
      return fail(Status::invalid(fmt::format("\"{}\" is not NAME=COMMAND", make_printable(entry))));
    servers.push_back({entry.substr(0, equals), entry.substr(equals + 1)});
  }
  TRY(check_mcp_servers(servers));
  return servers;
}

Json tool_schemas(std::span<const ForeignTool> tools) {
  Json array = Json::array();
  for (const auto& tool : tools) {
    Json function = {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}};
    array.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return array;
}

Result<std::optional<std::string>> read_foreign_tools(std::string_view server, const Json& result,
                                                      std::vector<ForeignTool>& tools,
                                                      std::vector<std::string>& left_out) {
  const auto wrong = [&](std::string why) { return fail(Status::invalid("the list of its tools " + std::move(why))); };
  if (!result.is_object() || !result.contains("tools") || !result.at("tools").is_array()) return wrong("is not one");
  size_t bytes = 0;
  for (const auto& tool : tools)
    bytes += tool.name.size() + tool.description.size() + dump_json(tool.parameters).size();
  for (const auto& entry : result.at("tools")) {
    ForeignTool tool;
    if (entry.is_object()) tool.tool = text_of(entry, "name");
    const auto leave_out = [&](std::string_view why) {
      constexpr size_t kLongestShown = 100;
      const auto name = make_printable(std::string_view(tool.tool).substr(0, kLongestShown));
      if (left_out.size() < kMostForeignTools) left_out.push_back(fmt::format("\"{}\" {}", name, why));
    };
    if (!entry.is_object()) {
      leave_out("is no tool");
      continue;
    }
    if (!is_tool_name(tool.tool)) {
      leave_out(
          fmt::format("has a name that is not 1 to {} letters, digits, dashes, dots and underscores", kLongestTool));
      continue;
    }
    tool.name = std::string(server).append(kForeignMark).append(tool.tool);
    tool.description = make_printable(text_of(entry, "description"));
    const auto schema = entry.find("inputSchema");
    if (schema == entry.end() || !schema->is_object() || text_of(*schema, "type") != "object") {
      leave_out("has no inputSchema of an object");
      continue;
    }
    tool.parameters = *schema;
    const bool doubled =
        std::any_of(tools.begin(), tools.end(), [&](const ForeignTool& other) { return other.tool == tool.tool; });
    if (doubled) {
      leave_out("is there twice, and the first is offered");
      continue;
    }
    bytes += tool.name.size() + tool.description.size() + dump_json(tool.parameters).size();
    tools.push_back(std::move(tool));
    if (tools.size() > kMostForeignTools || bytes > kMostForeignBytes)
      return wrong(fmt::format("has more than {} tools or {}", kMostForeignTools, format_bytes(kMostForeignBytes)));
  }
  auto cursor = text_of(result, "nextCursor");
  if (cursor.size() > kLongestCursor) return wrong("goes on at a place that is too long");
  return cursor.empty() ? std::nullopt : std::optional(std::move(cursor));
}

Result<ToolOutcome> read_foreign_outcome(const Json& result) {
  const bool has_content = result.is_object() && result.contains("content") && result.at("content").is_array();
  if (!result.is_object() || (!has_content && !result.contains("structuredContent")))
    return fail(Status::invalid("its answer to a call is not one: it has no list called content"));
  ToolOutcome outcome;
  outcome.ok = result.value("isError", Json()) != Json(true);
  if (has_content) {
    for (const auto& item : result.at("content")) {
      if (!outcome.output.empty() && !outcome.output.ends_with('\n')) outcome.output += '\n';
      outcome.output += item.is_object() ? shown(item) : shown(Json::object());
    }
  }
  if (outcome.output.empty() && result.contains("structuredContent"))
    outcome.output = make_printable(dump_json(result.at("structuredContent")));
  if (outcome.output.empty()) outcome.output = "[no output]\n";
  return outcome;
}

}  // namespace tandem::envs
