// rename: a name in all the files that define and use it.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kRename[] = {"rename",          "change the name", "refactor", "re-label",
                                        "switch the name", "convert",         "turn",     "rework",
                                        "update the name", "move the name",   "relabel",  "rebrand"};
constexpr std::string_view kTo[] = {"to",
                                    "into",
                                    "so that it is called",
                                    "as",
                                    "and call it",
                                    "to the new name",
                                    "to become",
                                    "-- the new name is",
                                    "and name it",
                                    "over to"};
constexpr std::string_view kEverywhere[] = {"everywhere",
                                            "in all files",
                                            "across the folder",
                                            "in every file that has it",
                                            "throughout the project",
                                            "wherever it occurs",
                                            "in the whole workspace",
                                            "in each file",
                                            "at every place",
                                            "in all places",
                                            "project-wide"};
constexpr std::string_view kShould[] = {
    "should be called", "must be named", "is to be called", "gets the name",  "will be known as",
    "has to be named",  "is now called", "shall be called", "needs the name", "was renamed by the team to"};
constexpr std::string_view kRenameFrames[] = {"<rename> {old} <to> {new} <everywhere><tail>",
                                              "<everywhere>, <rename> {old} <to> {new}<tail>",
                                              "<open> <rename> {old} <to> {new} <everywhere><tail>",
                                              "{old} <should> {new} <everywhere><tail>",
                                              "<everywhere>, {old} <should> {new}<tail>",
                                              "<rename> the identifier {old} <to> {new}, <everywhere><tail>",
                                              "<rename> the name {old} <to> {new} <everywhere><tail>",
                                              "the name {old} is bad: <rename> it <to> {new} <everywhere><tail>",
                                              "do a rename: {old} <should> {new}, <everywhere><tail>",
                                              "from now on {old} <should> {new}; fix it <everywhere><tail>",
                                              "<open> make {old} <to> {new} <everywhere><tail>",
                                              "what is called {old} <should> {new} <everywhere><tail>",
                                              "in the code, {old} <should> {new}, <everywhere><tail>",
                                              "<rename> {old} <everywhere>: it <should> {new}<tail>"};
constexpr Grammar::Part kRenameParts[] = {{"rename", kRename}, {"to", kTo},     {"everywhere", kEverywhere},
                                          {"should", kShould}, {"open", kOpen}, {"tail", kTail}};

}  // namespace

bool build_rename(Draft& draft) {
  Task& task = draft.task;
  const auto& format = draft.format(code_formats());
  const std::string extension(format.extension);
  const auto old_name = draft.words.draw(Words::kThing) + "_" + draft.words.draw(Words::kAspect);
  const auto new_name = draft.words.draw(Words::kAdjective) + "_" + draft.words.draw(Words::kAspect);
  const auto module = draft.words.file_stem();
  const auto source = [&](std::string_view text, const std::string& name) {
    // Sources have braces of their own, so slots are replaced by name.
    std::string result(text);
    const Slots slots = {{"{n}", name}, {"{m}", module}, {"{k}", draft.words.number()}};
    for (const auto& [slot, value] : slots) {
      for (size_t at; (at = result.find(slot)) != std::string::npos;) result.replace(at, slot.size(), value);
    }
    return result;
  };
  task.files[module + "." + extension] = source(format.definition, old_name);
  const size_t users = 1 + draft.random.below(2);
  for (size_t i = 0; i < users; ++i) {
    std::string path = draft.words.file_stem() + "." + extension;
    if (task.files.contains(path)) return false;
    task.files[path] = source(format.use, old_name);
  }
  if (draft.random.chance(0.4)) add_notes_file(draft);

  task.expectation.files = task.files;
  for (auto& [path, content] : *task.expectation.files) {
    if (count_in(content, new_name) > 0) return false;
    for (size_t at; (at = content.find(old_name)) != std::string::npos;) content.replace(at, old_name.size(), new_name);
  }
  draft.instruct({kRenameFrames, kRenameParts}, {{"old", old_name}, {"new", new_name}});
  task.solution.turns = {
      {shell_call("grep -rl " + old_name + " . | xargs sed -i 's/" + old_name + "/" + new_name + "/g'")}};
  return true;
}

}  // namespace tandem::envs
