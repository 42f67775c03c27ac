// The implementations of the tools; arguments are checked beforehand.
#pragma once

#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

ToolOutcome tool_read_file(const ToolContext& context, const Json& arguments);
ToolOutcome tool_search_replace(const ToolContext& context, const Json& arguments);
ToolOutcome tool_write(const ToolContext& context, const Json& arguments);
ToolOutcome tool_grep(const ToolContext& context, const Json& arguments);
ToolOutcome tool_list_dir(const ToolContext& context, const Json& arguments);
ToolOutcome tool_run_terminal_cmd(const ToolContext& context, const Json& arguments);
ToolOutcome tool_delete_file(const ToolContext& context, const Json& arguments);
ToolOutcome tool_glob_file_search(const ToolContext& context, const Json& arguments);
ToolOutcome tool_todo_write(const ToolContext& context, const Json& arguments);
ToolOutcome tool_apply_patch(const ToolContext& context, const Json& arguments);
ToolOutcome tool_read_lints(const ToolContext& context, const Json& arguments);
ToolOutcome tool_bash(const ToolContext& context, const Json& arguments);
ToolOutcome tool_str_replace_based_edit_tool(const ToolContext& context, const Json& arguments);
ToolOutcome tool_edit_file(const ToolContext& context, const Json& arguments);

// Implements read_file, for tools with other argument names.
struct LineRange {
  size_t first = 1, count = std::numeric_limits<size_t>::max();  // lines, from 1
  std::string_view first_name = "offset";                        // what the model calls `first`
};
ToolOutcome read_lines_of(const ToolContext& context, const std::string& path, const LineRange& range);

// Implements search_replace, for tools with other argument names; errors use those names.
struct Replacement {
  std::string path, old_text, new_text;
  bool all = false;
  std::string_view old_name = "old_string", new_name = "new_string", for_whole_files = "write",
                   for_all_places = ", or set replace_all to true";
};
ToolOutcome replace_text(const ToolContext& context, const Replacement& replacement);

// The regular file that a model names; else why it cannot be edited.
Result<std::filesystem::path> file_to_edit(const ToolContext& context, const std::string& name);

// Replaces the content of `path` at once: a reader sees the old or the new. Keeps the mode of a file that is there.
Status replace_content(const std::filesystem::path& path, std::string_view content);

// The lines of `content` that are most like the first line of `text` that is not blank, numbered; empty where none is
// like it.
std::string nearest_lines(std::string_view content, std::string_view text);

// The hint where `old_text` (the argument `old_name`) was not found in `content`: the nearest lines, and what nobody
// sees of the difference: bytes that are no UTF-8, letters that look alike.
std::string why_not_there(std::string_view content, std::string_view old_text, std::string_view old_name);

// `text` with every `from`, which is not empty, replaced by `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// "    12|text" for one line, as read_file prints it.
std::string numbered(size_t line, std::string_view text);

// The environment that commands get when the context names none.
std::vector<std::string> clean_environment(const ToolContext& context);

inline constexpr uint64_t kLargestFile = 16 << 20;  // bytes a file tool reads or writes

}  // namespace tandem::envs
