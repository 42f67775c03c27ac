// edit_file: a sketch of the file, as models know it that were given a second one to apply it. Here nothing guesses.
#include <fmt/format.h>

#include "base/file.h"
#include "envs/tools/editable_text.h"
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
  const auto sketch = arguments.at("code_edit").get<std::string>();
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  if (!has_gaps(sketch)) return tool_write(context, {{"file_path", name}, {"contents", sketch}});
  if (auto there = file_to_edit(context, name); !there) return ToolOutcome::refused(there.error().message());
  const auto content = read_file(*path, kLargestFile);
  if (!content) return ToolOutcome::refused(content.error().message());
  const auto editable = EditableText::of(*content, name);
  if (!editable) return ToolOutcome::refused(editable.error().message());
  auto edited = apply_sketch(editable->text(), editable->adapted(sketch));
  if (!edited) return ToolOutcome::refused(edited.error().message() + ". Nothing was changed in " + name);
  if (edited->content == editable->text()) return ToolOutcome::refused("the edit would change nothing in " + name);
  const auto result = editable->restored(edited->content);
  if (auto status = replace_content(*path, result); !status) return ToolOutcome::refused(status.message());
  return ToolOutcome::edited("Edited " + shown(context, *path) + in_words(*edited) + ".",
                             {change_of(*path, *content, result)});
}

}  // namespace tandem::envs
