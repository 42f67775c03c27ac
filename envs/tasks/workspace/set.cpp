// set: change a named setting to a given value.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kSet[] = {"set",   "change", "update", "switch", "adjust", "turn", "move",    "put",
                                     "alter", "modify", "reset",  "bring",  "edit",   "tune", "correct", "bump"};
constexpr std::string_view kSetTo[] = {
    "to",        "to be",      "to the value", "so that it is",       "to read",        "over to", "to hold",
    "to become", "so it says", "to exactly",   "such that it equals", "to a new value,"};
constexpr std::string_view kThing[] = {"the setting",  "the option",    "the value of", "the entry",
                                       "the key",      "the parameter", "the field",    "the configured",
                                       "the line for", "the variable",  "the property", "what is stored as"};
constexpr std::string_view kSetShould[] = {"should be",   "must be",      "has to be",         "needs to be",
                                           "ought to be", "shall become", "is supposed to be", "should now read",
                                           "is to be",    "wants to be",  "should say",        "must become"};
constexpr std::string_view kSetFrames[] = {"<set> {key} <to> {value} <in> {file}<tail>",
                                           "<set> <thing> {key} <in> {file} <to> {value}<tail>",
                                           "<open> <set> {key} <in> {file} <to> {value}<tail>",
                                           "<open> <set> <thing> {key} <to> {value} <in> {file}<tail>",
                                           "in {file}, {key} <should> {value}<tail>",
                                           "in {file}, <set> {key} <to> {value}<tail>",
                                           "in {file}, <set> <thing> {key} <to> {value}<tail>",
                                           "{key} <in> {file} <should> {value}<tail>",
                                           "<thing> {key} <in> {file} <should> {value}<tail>",
                                           "{file}: <set> {key} <to> {value}<tail>",
                                           "{file}: {key} <should> {value}<tail>",
                                           "edit {file}: {key} <should> {value}<tail>",
                                           "open {file} and <set> {key} <to> {value}<tail>",
                                           "make sure that {key} <in> {file} reads {value}<tail>",
                                           "{key} is wrong <in> {file}: it <should> {value}<tail>",
                                           "from now on {key} <in> {file} <should> {value}<tail>",
                                           "we decided that {key} <should> {value}; <set> it <in> {file}<tail>",
                                           "give {key} the value {value} <in> {file}<tail>"};
constexpr Grammar::Part kSetParts[] = {{"set", kSet},   {"to", kSetTo}, {"thing", kThing}, {"should", kSetShould},
                                       {"open", kOpen}, {"in", kIn},    {"tail", kTail}};

}  // namespace

bool build_set(Draft& draft) {
  Task& task = draft.task;
  auto file = add_settings_file(draft, 3 + draft.random.below(3));
  if (draft.random.chance(0.4)) {
    add_settings_file(draft, 2);
  } else {
    add_notes_file(draft);
  }
  Entry& entry = file.entries[draft.random.below(file.entries.size())];
  const std::string old_value = entry.value;
  const bool number = old_value.find_first_not_of("0123456789") == std::string::npos;
  const std::string new_value = number ? draft.words.number() : draft.words.draw(Words::kAdjective);
  const auto key = file.format->key(entry.key);
  const auto old_entry = file.format->entry(entry.key, old_value), new_entry = file.format->entry(entry.key, new_value);
  if (new_value == old_value || count_in(task.files[file.path], old_entry) != 1) return false;
  draft.instruct({kSetFrames, kSetParts}, {{"key", key}, {"file", file.path}, {"value", new_value}});

  entry.value = new_value;
  task.expectation.files = task.files;
  (*task.expectation.files)[file.path] = file.content();
  task.solution.turns = {{draft.random.chance(0.5) ? read_call(file.path) : grep_call(key, file.path)},
                         {replace_call(file.path, old_entry, new_entry)}};
  return true;
}

}  // namespace tandem::envs
