// lookup: find the value of a named setting and answer with it.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kAsk[] = {"what is the value of",
                                     "what value has",
                                     "look up",
                                     "find the value of",
                                     "tell me the value of",
                                     "report",
                                     "give me",
                                     "which value is set for",
                                     "read out",
                                     "I need the value of",
                                     "fetch",
                                     "name the value of",
                                     "what does it say for",
                                     "check what is written for",
                                     "find out",
                                     "which value belongs to",
                                     "show me the value of",
                                     "determine"};
constexpr std::string_view kWhere[] = {"in",        "inside",      "within",        "according to",
                                       "as set in", "as given in", "defined in",    "stored in",
                                       "listed in", "found in",    "as written in", "kept in"};
constexpr std::string_view kHolds[] = {
    "has an entry", "holds a value for", "sets",           "contains the setting", "defines",
    "lists",        "mentions",          "has a line for", "gives a value to",     "knows"};
constexpr std::string_view kSomewhere[] = {
    "somewhere in this folder", "in one of the files", "in the project", "among these files",
    "in this workspace",        "in the files here",   "in this folder", "wherever it is defined",
    "in whichever file has it", "in the listed files"};
constexpr std::string_view kLookupFrames[] = {"<ask> {key} <where> {file}<tail>",
                                              "<where> {file}, <ask> {key}<tail>",
                                              "{file} <holds> {key}; <ask> it<tail>",
                                              "<open> say: <ask> {key} <where> {file}<tail>",
                                              "about {file}: <ask> {key}<tail>",
                                              "<ask> {key}<tail> It is <where> {file}.",
                                              "open {file} and <ask> {key}<tail>",
                                              "{key} is a setting <where> {file}. <ask> it<tail>",
                                              "for {key}, <where> {file}, <ask> the entry<tail>",
                                              "question: <ask> {key} <where> {file}<tail>",
                                              "<ask> the setting {key} <where> {file}<tail>",
                                              "<ask> the entry {key}, <where> {file}<tail>",
                                              "{file}, {key}: <ask> that<tail>",
                                              "<open> look into {file}: <ask> {key}<tail>",
                                              "I forgot {key} <where> {file}; <ask> it<tail>"};
constexpr std::string_view kOpenFrames[] = {"<ask> {key} <somewhere><tail>",
                                            "<somewhere> there is {key}; <ask> it<tail>",
                                            "<open> search: <ask> {key} <somewhere><tail>",
                                            "{key} is set <somewhere>; <ask> it<tail>",
                                            "search for {key} <somewhere>, and <ask> it<tail>",
                                            "<ask> the setting {key}, <somewhere><tail>",
                                            "not knowing the file: <ask> {key} <somewhere><tail>",
                                            "<somewhere>, <ask> {key}<tail>",
                                            "one file here sets {key}. <ask> it<tail>",
                                            "<ask> {key}<tail> Look <somewhere>."};
constexpr Grammar::Part kLookupParts[] = {{"ask", kAsk},   {"where", kWhere},         {"holds", kHolds},
                                          {"open", kOpen}, {"somewhere", kSomewhere}, {"tail", kReport}};

}  // namespace

bool build_lookup(Draft& draft) {
  Task& task = draft.task;
  const auto file = add_settings_file(draft, 3 + draft.random.below(3));
  if (draft.random.chance(0.5)) {
    add_settings_file(draft, 2 + draft.random.below(2));
  } else {
    add_notes_file(draft);
  }
  const Entry& entry = draft.random.pick(file.entries);
  const auto key = file.format->key(entry.key);
  const bool named = draft.random.chance(0.7);
  draft.instruct(named ? Grammar{kLookupFrames, kLookupParts} : Grammar{kOpenFrames, kLookupParts},
                 {{"key", key}, {"file", file.path}});

  size_t places = 0;
  for (const auto& [path, content] : task.files) places += count_in(content, key);
  if (places != 1) return false;
  task.expectation.files = task.files;
  task.expectation.answer = entry.value;
  for (const auto& other : file.entries) {
    if (other.value != entry.value) task.expectation.distractors.push_back(other.value);
  }
  const bool read = named && draft.random.chance(0.7);
  task.solution.turns = {{read ? read_call(file.path) : grep_call(key, named ? file.path : "")}};
  task.solution.answer = entry.value;
  return true;
}

}  // namespace tandem::envs
