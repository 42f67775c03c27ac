// edit_file: a sketch of the file, as models know it that were given a second one to apply it. Here nothing guesses.
#include <fmt/format.h>

#include "base/file.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"
#include "envs/tools/sketch.h"

namespace tandem::envs {
namespace {

std::string in_words(const SketchedText& text) {
  std::string words;
  for (const auto& part : text.parts) {
    words += words.empty() ? ": " : ", ";
    words += part.first == part.last ? fmt::format("line {}", part.first)
                                     : fmt::format("lines {} to {}", part.first, part.last);
    words += fmt::format(" became {}", part.new_lines);
  }
  return words;
}

}  // namespace

ToolOutcome tool_edit_file(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("target_file").get<std::string>();
  auto sketch = arguments.at("code_edit").get<std::string>();
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  if (!has_gaps(sketch)) return tool_write(context, {{"file_path", name}, {"contents", sketch}});
  if (auto there = file_to_edit(context, name); !there) return ToolOutcome::refused(there.error().message());
  auto content = read_file(*path, kLargestFile);
  if (!content) return ToolOutcome::refused(content.error().message());
  const bool windows = has_windows_ends(*content);
  if (windows) {
    *content = replaced(*content, "\r\n", "\n");
    sketch = replaced(sketch, "\r\n", "\n");
  }
  auto edited = apply_sketch(*content, sketch);
  if (!edited) return ToolOutcome::refused(edited.error().message() + ". Nothing was changed in " + name);
  if (edited->content == *content) return ToolOutcome::refused("the edit would change nothing in " + name);
  const auto result = windows ? replaced(edited->content, "\n", "\r\n") : edited->content;
  if (auto status = replace_content(*path, result); !status) return ToolOutcome::refused(status.message());
  auto outcome = ToolOutcome::done("Edited " + shown(context, *path) + in_words(*edited) + ".");
  outcome.changed_files = true;
  return outcome;
}

}  // namespace tandem::envs
