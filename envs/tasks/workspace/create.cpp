// create: a new file with given contents.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kCreate[] = {"create", "make",     "write", "start",   "add",      "set up", "produce",
                                        "save",   "generate", "open",  "prepare", "put down", "begin",  "lay out"};
constexpr std::string_view kFile[] = {"a file",       "a new file",    "the file",           "a text file",
                                      "a fresh file", "one file",      "an additional file", "a small file",
                                      "another file", "a file called", "a document",         "a file named"};
constexpr std::string_view kWith[] = {
    "with the line",     "that contains",        "containing",      "holding the text", "that says",
    "with the contents", "whose only line is",   "consisting of",   "with just",        "that reads",
    "and put in it",     "with the single line", "and fill it with"};
constexpr std::string_view kStop[] = {".",
                                      ", nothing more.",
                                      ", please.",
                                      " and no other line.",
                                      ". Only that.",
                                      "; that is all.",
                                      ", exactly.",
                                      " -- just that.",
                                      ". Leave the other files alone.",
                                      " for me.",
                                      " now.",
                                      ", word for word.",
                                      ". Change no other file."};
constexpr std::string_view kCreateFrames[] = {"<create> <file> {file} <with> \"{text}\"<stop>",
                                              "<open> <create> <file> {file} <with> \"{text}\"<stop>",
                                              "<create> {file} <with> \"{text}\"<stop>",
                                              "<open> <create> {file} <with> \"{text}\"<stop>",
                                              "we need <file> {file} <with> \"{text}\"<stop>",
                                              "there should be <file> {file} <with> \"{text}\"<stop>",
                                              "{file} does not exist yet: <create> it <with> \"{text}\"<stop>",
                                              "<create> <file>, {file}, <with> \"{text}\"<stop>",
                                              "in this folder, <create> <file> {file} <with> \"{text}\"<stop>",
                                              "I miss <file> {file} <with> \"{text}\"<stop>",
                                              "new file: {file}, <with> \"{text}\"<stop>",
                                              "the project wants <file> {file} <with> \"{text}\"<stop>",
                                              "under the name {file}, <create> <file> <with> \"{text}\"<stop>",
                                              "<with> \"{text}\": <create> <file> {file} like that<stop>"};
constexpr Grammar::Part kCreateParts[] = {
    {"create", kCreate}, {"file", kFile}, {"with", kWith}, {"open", kOpen}, {"stop", kStop}};

}  // namespace

bool build_create(Draft& draft) {
  Task& task = draft.task;
  const size_t others = 1 + draft.random.below(2);
  for (size_t i = 0; i < others; ++i) add_notes_file(draft);
  std::string path, text;
  if (draft.random.chance(0.5)) {
    const auto& format = draft.format(settings_formats());
    path = draft.new_path(format.extension);
    text = format.key(draft.words.setting()) + " = " + draft.words.number();
  } else {
    path = draft.new_path(draft.format(notes_formats()).extension);
    text = draft.random.chance(0.5) ? draft.words.person() + " meets " + draft.words.person()
                                    : "the " + draft.words.label() + " opens in " + draft.words.draw(Words::kPlace);
  }
  draft.instruct({kCreateFrames, kCreateParts}, {{"text", text}, {"file", path}});
  task.expectation.files = task.files;
  (*task.expectation.files)[path] = text + "\n";
  task.solution.turns = {{Call{"write", {{"file_path", path}, {"contents", text + "\n"}}}}};
  return true;
}

}  // namespace tandem::envs
