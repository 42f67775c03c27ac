// append: one more line at the end of a file.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kAppendAdd[] = {"add",     "append", "put",   "attach", "write",  "insert",  "place",
                                           "tack on", "enter",  "leave", "store",  "record", "include", "file"};
constexpr std::string_view kLine[] = {
    "the line", "this line", "a line saying",       "one more line:", "a new last line:", "a final line,",
    "the text", "the entry", "the following line:", "a closing line", "an extra line,",   "the sentence"};
constexpr std::string_view kAppendEnd[] = {"at the end of",           "to the end of",
                                           "at the bottom of",        "as the last line of",
                                           "below everything in",     "after the last line of",
                                           "at the very end of",      "under the last line of",
                                           "at the foot of",          "behind all other lines of",
                                           "as the new last line in", "to the bottom of"};
constexpr std::string_view kFrames[] = {"<add> <line> \"{line}\" <end> {file}<tail>",
                                        "<end> {file}, <add> <line> \"{line}\"<tail>",
                                        "<open> <add> <line> \"{line}\" <end> {file}<tail>",
                                        "{file} lacks <line> \"{line}\"; <add> it <end> {file}<tail>",
                                        "{file}: <add> <line> \"{line}\" <end> it<tail>",
                                        "<add> \"{line}\" <end> {file}<tail>",
                                        "<open> <add> \"{line}\" <end> {file}<tail>",
                                        "<end> {file} there should be <line> \"{line}\"; <add> it<tail>",
                                        "extend {file}: <add> <line> \"{line}\" <end> the file<tail>",
                                        "one thing is missing <end> {file}: <line> \"{line}\"<tail>",
                                        "<line> \"{line}\" belongs <end> {file}; <add> it there<tail>",
                                        "let {file} end with <line> \"{line}\"<tail>",
                                        "go to {file} and <add> \"{line}\" <end> it<tail>",
                                        "<add> <line> \"{line}\", <end> {file}<tail>"};
constexpr Grammar::Part kParts[] = {
    {"add", kAppendAdd}, {"line", kLine}, {"end", kAppendEnd}, {"open", kOpen}, {"tail", kTail}};

}  // namespace

bool build_append(Draft& draft) {
  Task& task = draft.task;
  const auto& format = draft.format(notes_formats());
  if (!format.close.empty()) return false;  // the last line would stand outside of the list
  const auto path = draft.new_path(format.extension);
  std::vector<std::string> lines;
  const size_t count = 2 + draft.random.below(3);
  while (lines.size() < count) lines.push_back(draft.words.person() + " likes " + draft.words.draw(Words::kPlace));
  task.files[path] = format.render(draft.words.draw(Words::kProgram), lines);
  if (draft.random.chance(0.5)) add_notes_file(draft);

  auto line = format.line(draft.random.chance(0.5) ? draft.words.person() + " visits " + draft.words.draw(Words::kPlace)
                                                   : "the " + draft.words.label() + " is ready");
  line.pop_back();
  if (task.files[path].find(line) != std::string::npos || line.find_first_of("'\"`$\\") != std::string::npos)
    return false;
  draft.instruct({kFrames, kParts}, {{"line", line}, {"file", path}});
  task.expectation.files = task.files;
  (*task.expectation.files)[path] += line + "\n";
  task.solution.turns = {{shell_call("echo '" + line + "' >> " + path)}};
  return true;
}

}  // namespace tandem::envs
