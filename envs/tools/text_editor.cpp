// str_replace_based_edit_tool: viewing and editing by the name and the parameters that models of Anthropic know.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/editable_text.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

constexpr size_t kTextEditorMostListed = 500;  // names of a folder and of the folders in it

// What a command takes beside `command` and `path`; schemas have no word for it.
struct EditCommand {
  std::string_view name;
  std::vector<std::string_view> needs, takes;
};

const std::array<EditCommand, 4>& commands() {
  static const std::array<EditCommand, 4> kCommands = {{{"view", {}, {"view_range"}},
                                                        {"create", {"file_text"}, {}},
                                                        {"str_replace", {"old_str"}, {"new_str"}},
                                                        {"insert", {"insert_line"}, {"insert_text", "new_str"}}}};
  return kCommands;
}

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What is wrong with the arguments for this command, or empty.
std::string wrong_for(const EditCommand& command, const Json& arguments) {
  std::string usage(command.name);
  usage += "{path";
  for (const auto name : command.needs) usage.append(", ").append(name);
  for (const auto name : command.takes) usage.append(", ").append(name).append("?");
  usage += '}';
  for (const auto& [name, value] : arguments.items()) {
    if (name == "command" || name == "path" || has(command.needs, name) || has(command.takes, name)) continue;
    return "the command " + std::string(command.name) + " takes no \"" + name + "\". Use: " + usage;
  }
  for (const auto name : command.needs) {
    if (!arguments.contains(name))
      return "the command " + std::string(command.name) + " needs \"" + std::string(name) + "\". Use: " + usage;
  }
  return "";
}

// The names in a folder and, `levels` deep, in those below it; hidden ones and what packages brought are left out.
void list_folder(const fs::path& folder, const std::string& before, int levels, std::vector<std::string>& names) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const auto name = entry->path().filename().string();
    if (name.starts_with('.') || name == "node_modules") continue;
    std::error_code ignored;
    const bool is_folder = entry->is_directory(ignored) && !entry->is_symlink(ignored);
    const auto shown_name = before + name + (is_folder ? "/" : "");
    names.push_back(shown_name);
    if (is_folder && levels > 1) list_folder(entry->path(), shown_name, levels - 1, names);
  }
}

ToolOutcome view_folder(const fs::path& folder) {
  std::vector<std::string> names;
  list_folder(folder, "", 2, names);
  std::sort(names.begin(), names.end());
  if (names.empty()) return ToolOutcome::done("The folder is empty.");
  const size_t shown_names = std::min(names.size(), kTextEditorMostListed);
  std::string text = join(std::span(names).first(shown_names), "\n") + "\n";
  if (shown_names < names.size()) text += "... " + std::to_string(names.size() - shown_names) + " more\n";
  return ToolOutcome::done(std::move(text));
}

ToolOutcome view(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("path").get<std::string>();
  const bool part = arguments.contains("view_range");
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  if (fs::is_directory(*path, error)) {
    if (part) return ToolOutcome::refused("\"" + name + "\" is a folder; view_range is for files");
    return view_folder(*path);
  }
  LineRange range;
  if (part) {
    const auto first = arguments.at("view_range")[0].get<int64_t>(),
               last = arguments.at("view_range")[1].get<int64_t>();
    if (first < 1 || (last < first && last != -1)) {
      return ToolOutcome::refused(
          "view_range must be [FIRST, LAST], counted from 1, where LAST is not before FIRST; -1 " +
          std::string("is the end of the file"));
    }
    range.first = static_cast<size_t>(first);
    if (last != -1) range.count = static_cast<size_t>(last - first) + 1;
    range.first_name = "view_range: line";
  }
  return read_lines_of(context, name, range);
}

ToolOutcome insert(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("path").get<std::string>();
  if (arguments.contains("insert_text") == arguments.contains("new_str")) {
    return ToolOutcome::refused(
        "the command insert needs \"insert_text\". Use: insert{path, insert_line, insert_text}");
  }
  auto text = arguments.at(arguments.contains("insert_text") ? "insert_text" : "new_str").get<std::string>();
  if (text.empty()) return ToolOutcome::refused("insert_text is empty; the edit would change nothing");
  const auto path = file_to_edit(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  auto content = read_file(*path, kLargestFile);
  if (!content) return ToolOutcome::refused(content.error().message());
  const auto editable = EditableText::of(*content, name);
  if (!editable) return ToolOutcome::refused(editable.error().message());
  const std::string before = std::exchange(*content, editable->text());
  text = editable->adapted(text);

  // Where a line begins that is not there yet, the last one has no end.
  std::vector<size_t> ends = {0};
  for (size_t at = content->find('\n'); at != std::string::npos; at = content->find('\n', at + 1))
    ends.push_back(at + 1);
  if (ends.back() != content->size()) ends.push_back(content->size());
  const auto line = arguments.at("insert_line").get<size_t>();
  if (line >= ends.size()) {
    const size_t lines = ends.size() - 1;
    return ToolOutcome::refused("insert_line " + std::to_string(line) + " is past the end; " + name + " has " +
                                std::to_string(lines) + (lines == 1 ? " line" : " lines"));
  }
  const size_t at = ends[line];
  const bool open_before = at > 0 && (*content)[at - 1] != '\n';
  if (open_before) text.insert(0, "\n");
  // At the end of a file that has none, the last line stays without one.
  if (!text.ends_with('\n') && !(at == content->size() && open_before)) text += '\n';
  content->insert(at, text);
  const auto restored = editable->restored(*content);
  if (auto status = replace_content(*path, restored); !status) return ToolOutcome::refused(status.message());
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - (open_before ? 1 : 0) +
                     (text.ends_with('\n') ? 0 : 1);
  return ToolOutcome::edited("Edited " + shown(context, *path) + ": inserted " + std::to_string(lines) +
                                 (lines == 1 ? " line" : " lines") +
                                 (line == 0 ? " at the beginning." : " after line " + std::to_string(line) + "."),
                             {change_of(*path, before, restored)});
}

}  // namespace

ToolOutcome tool_str_replace_based_edit_tool(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("command").get<std::string>();
  const auto command =
      std::find_if(commands().begin(), commands().end(), [&](const auto& known) { return known.name == name; });
  if (auto wrong = wrong_for(*command, arguments); !wrong.empty()) return ToolOutcome::refused(std::move(wrong));
  if (name == "view") return view(context, arguments);
  if (name == "insert") return insert(context, arguments);
  const auto& path = arguments.at("path");
  if (name == "create") return tool_write(context, {{"file_path", path}, {"contents", arguments.at("file_text")}});
  const Replacement replacement{.path = path.get<std::string>(),
                                .old_text = arguments.at("old_str").get<std::string>(),
                                .new_text = arguments.value("new_str", ""),
                                .all = false,
                                .old_name = "old_str",
                                .new_name = "new_str",
                                .for_whole_files = "the command create",
                                .for_all_places = ""};
  return replace_text(context, replacement);
}

}  // namespace tandem::envs
