// The functions behind the table of tools; arguments have been checked when they are called.
#pragma once

#include <filesystem>
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

// Replaces the content of `path` at once: a reader sees the old or the new. Keeps the mode of a file that is there.
Status replace_content(const std::filesystem::path& path, std::string_view content);

// The lines of `content` that are most like the first line of `text` that is not blank, numbered; empty where none is
// like it.
std::string nearest_lines(std::string_view content, std::string_view text);

// Whether every line end is \r\n; such a file is edited with \n and written back as it was.
bool has_windows_ends(std::string_view content);

// `text` with every `from`, which is not empty, replaced by `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// "    12|text" for one line, as read_file prints it.
std::string numbered(size_t line, std::string_view text);

// The environment that commands get when the context names none.
std::vector<std::string> clean_environment(const ToolContext& context);

inline constexpr uint64_t kLargestFile = 16 << 20;  // bytes a file tool reads or writes

}  // namespace tandem::envs
