#include "envs/episodes/opening.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostListed = 60;  // files of a prompt; those of a whole repository are for list_dir

constexpr std::string_view kOpening = "You work in a folder by calling tools:\n";
// The tools that models have been trained on, as they know them.
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
constexpr std::string_view kCalls = "Call a tool like this:\n<tool_call>", kCallsEnd = "</tool_call>";
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
  text += kCalls;
  if (is_in(names, "read_file")) {
    text += kExample;
  } else {
    text += "{\"name\": \"" + (names.empty() ? std::string("...") : names.front()) + "\", \"arguments\": {...}}";
  }
  return text.append(kCallsEnd).append(kAdvice);
}

// What lies at the top of a base, folders with a slash, and how much there is.
std::string top_of(const BaseTree& base) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base.tree(), error)) {
    std::error_code ignored;
    const bool is_folder = entry.symlink_status(ignored).type() == std::filesystem::file_type::directory;
    names.push_back(entry.path().filename().string() + (is_folder ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  const size_t more = names.size() - std::min(names.size(), kMostListed);
  names.resize(names.size() - more);
  std::string text = join(names, "\n") + "\n";
  if (more > 0) text += "... and " + std::to_string(more) + " more\n";
  return text + "(" + std::to_string(base.files) + " files in all)\n";
}

}  // namespace

Opening opening(const Task& task, std::span<const std::string> tools, std::span<const ForeignTool> foreign,
                ToolListing listing, std::string_view system, std::string_view packages) {
  std::string user = "Files:\n";
  if (task.base && task.base->tree) user += top_of(*task.base->tree);
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
  if (!packages.empty()) user += std::string(packages) + "\n\n";
  user += task.instruction;
  const bool by_template = listing == ToolListing::kByTemplate;
  Opening opening;
  opening.messages = {{"system", by_template ? std::string(system) : system_message(tools, foreign)},
                      {"user", std::move(user)}};
  opening.tools = schemas_of(tools, foreign);
  return opening;
}

Json schemas_of(std::span<const std::string> tools, std::span<const ForeignTool> foreign) {
  Json schemas = tool_schemas(tools);
  for (auto& schema : tool_schemas(foreign)) schemas.push_back(std::move(schema));
  return schemas;
}

std::vector<std::string> prompted_tools(WithSearch search) {
  std::vector<std::string> names = {"read_file", "search_replace", "write", "grep", "list_dir", "run_terminal_cmd"};
  if (search == WithSearch::kYes) names.emplace_back(kSearchTool);
  return names;
}

}  // namespace tandem::envs
