#include "envs/episodes/protocol.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

constexpr size_t kMostListed = 60;  // files of a prompt; those of a whole repository are for list_dir

constexpr std::string_view kOpening = "You work in a folder by calling tools:\n";
// Of the tools that models have been trained on, as they know them.
struct ToolLine {
  std::string_view name, line;
};
constexpr std::array<ToolLine, 7> kLines = {{
    {"read_file", "read_file(target_file)\n"},
    {"grep", "grep(pattern, path)\n"},
    {"list_dir", "list_dir(target_directory)\n"},
    {"search_replace", "search_replace(file_path, old_string, new_string, replace_all)\n"},
    {"write", "write(file_path, contents)\n"},
    {"run_terminal_cmd", "run_terminal_cmd(command)\n"},
    {kSearchTool, "codebase_search(query, target_directories)\n"},
}};
constexpr std::string_view kCalls = "Call a tool like this:\n";
constexpr std::string_view kExample = "{\"name\": \"read_file\", \"arguments\": {\"target_file\": \"a.txt\"}}";
constexpr std::string_view kAdvice =
    "\nLook first where you must. When asked for a value, answer with it alone, without a call.";

bool is_in(std::span<const std::string> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A tool that has no line above says what it is for.
std::string described(std::string_view tool, std::string_view description, const Json& schema) {
  std::vector<std::string> parameters;
  const auto properties = schema.find("properties");
  if (properties != schema.end() && properties->is_object()) {
    for (const auto& property : properties->items()) parameters.push_back(property.key());
  }
  return std::string(tool) + "(" + join(parameters, ", ") + "): " + std::string(description) + "\n";
}

std::string system_message(std::span<const std::string> names, std::span<const ForeignTool> foreign) {
  std::string text(kOpening);
  for (const auto& each : kLines) {
    if (is_in(names, each.name)) text += each.line;
  }
  for (const auto& tool : every_tool()) {
    const bool has_line =
        std::any_of(kLines.begin(), kLines.end(), [&](const auto& each) { return each.name == tool.name; });
    if (!has_line && is_in(names, tool.name))
      text += described(tool.name, tool.description, Json::parse(tool.parameters));
  }
  for (const auto& tool : foreign) text += described(tool.name, tool.description, tool.parameters);
  text.append(kCalls).append(kOpen);
  if (is_in(names, "read_file")) {
    text += kExample;
  } else {
    text += "{\"name\": \"" + (names.empty() ? std::string("...") : names.front()) + "\", \"arguments\": {...}}";
  }
  return text.append(kClose).append(kAdvice);
}

ParsedCall parse_call(std::string_view text) {
  ParsedCall parsed;
  const auto wrong = [&](std::string why) {
    parsed.error = "Error: " + std::move(why) + ". Write <tool_call>{\"name\": ..., \"arguments\": {...}}</tool_call>.";
    return parsed;
  };
  auto json = parse_json(trim(text));
  if (!json) return wrong("the call is not valid JSON: " + make_printable(json.error().message()));
  if (!json->is_object()) return wrong("the call must be a JSON object");
  if (!json->contains("name") || !json->at("name").is_string()) return wrong("the call lacks \"name\"");
  if (!json->contains("arguments")) return wrong("the call lacks \"arguments\"");
  for (const auto& [key, value] : json->items()) {
    if (key != "name" && key != "arguments")
      return wrong("the call has an unknown key \"" + make_printable(key) + "\"");
  }
  if (!json->at("arguments").is_object()) return wrong("\"arguments\" must be a JSON object");
  parsed.call.name = json->at("name").get<std::string>();
  parsed.call.arguments = std::move(json->at("arguments"));
  return parsed;
}

// As Python's json.dumps writes it, which is what models have seen: ", " and ": ".
void write_json(const Json& value, std::string& text) {
  if (value.is_object()) {
    text += '{';
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) text += ", ";
      first = false;
      text += dump_json(Json(key)) + ": ";
      write_json(item, text);
    }
    text += '}';
  } else {
    text += dump_json(value);
  }
}

}  // namespace

std::vector<Message> prompt(const Task& task, std::span<const std::string> tools,
                            std::span<const ForeignTool> foreign) {
  std::string user = "Files:\n";
  size_t listed = 0;
  for (const auto& [path, content] : task.files) {
    if (++listed > kMostListed) break;
    user += path + "\n";
  }
  if (listed > kMostListed) user += "... and " + std::to_string(task.files.size() - kMostListed) + " more\n";
  user += '\n';
  if (!task.network.empty()) {
    user += "Programs reach these hosts through the proxy that http_proxy and https_proxy name, and no others: " +
            join(task.network.entries(), ", ") + "\n\n";
  }
  return {{"system", system_message(tools, foreign)}, {"user", user + task.instruction}};
}

std::vector<std::string> prompted_tools(WithSearch search) {
  std::vector<std::string> names = {"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd"};
  if (search == WithSearch::kYes) names.emplace_back(kSearchTool);
  return names;
}

std::string render_call(const Call& call) {
  std::string text(kOpen);
  write_json(Json{{"name", call.name}, {"arguments", call.arguments}}, text);
  return text.append(kClose);
}

std::string render_calls(std::span<const Call> calls) {
  std::vector<std::string> parts;
  for (const auto& call : calls) parts.push_back(render_call(call));
  return join(parts, "\n");
}

Message render_responses(std::span<const ToolOutcome> outcomes) {
  std::string text;
  for (const auto& outcome : outcomes) {
    if (!text.empty()) text += '\n';
    text += "<tool_response>\n" + outcome.output;
    if (text.back() != '\n') text += '\n';
    text += "</tool_response>";
  }
  return {"user", std::move(text)};
}

ParsedTurn parse_message(std::string_view content) {
  ParsedTurn message;
  std::string outside;
  while (true) {
    const size_t begin = content.find(kOpen);
    outside.append(content.substr(0, begin));
    if (begin == std::string_view::npos) break;
    content.remove_prefix(begin + kOpen.size());
    const size_t end = content.find(kClose);
    message.calls.push_back(parse_call(content.substr(0, end)));
    if (end == std::string_view::npos) {
      // A call that was never closed may be cut short: it is not run even where it reads well.
      if (message.calls.back().error.empty()) {
        message.calls.back().error = "Error: the call is not closed. Write </tool_call> after it.";
      }
      break;
    }
    content.remove_prefix(end + kClose.size());
  }
  message.text = std::string(trim(outside));
  return message;
}

}  // namespace tandem::envs
