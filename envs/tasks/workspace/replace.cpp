// replace: one text for another in a file of notes, once or everywhere.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kReplace[] = {"replace", "swap",    "substitute", "exchange", "change", "overwrite",
                                         "turn",    "convert", "correct",    "switch",   "trade",  "rewrite"};
constexpr std::string_view kBy[] = {
    "with",          "by",       "for",          "to",     "into", "->", "and put in its place", "so that it reads",
    "giving way to", "becoming", "in favour of", "against"};
constexpr std::string_view kOnce[] = {"the word", "the text",   "the name",   "the term",  "the mention of",
                                      "the one",  "the phrase", "the single", "the entry", "the string"};
constexpr std::string_view kEvery[] = {"every",
                                       "each",
                                       "all occurrences of",
                                       "every mention of",
                                       "all the places with",
                                       "every single",
                                       "each instance of",
                                       "all mentions of",
                                       "the word, wherever it stands,",
                                       "any"};
constexpr std::string_view kReplaceFrames[] = {
    "<replace> <which> {old} <by> {new} <in> {file}<tail>",
    "in {file}, <replace> <which> {old} <by> {new}<tail>",
    "<open> <replace> <which> {old} <by> {new} <in> {file}<tail>",
    "{file}: <replace> <which> {old} <by> {new}<tail>",
    "<open> <replace> <which> \"{old}\" <by> \"{new}\" <in> {file}<tail>",
    "<replace> <which> \"{old}\" <in> {file} <by> \"{new}\"<tail>",
    "edit {file} and <replace> <which> {old} <by> {new}<tail>",
    "<which> {old} <in> {file} should be {new}<tail>",
    "it should say {new} and not {old} <in> {file}; <replace> <which> {old}<tail>",
    "in {file}, <which> {old} is outdated, it is {new} now<tail>",
    "open {file}, <replace> <which> {old} <by> {new}<tail>",
    "the notes <in> {file} are wrong: <replace> <which> {old} <by> {new}<tail>",
    "where {file} says {old}, <which> {old} must become {new}<tail>",
    "we now say {new}: <replace> <which> {old} <in> {file}<tail>"};
constexpr Grammar::Part kOnceParts[] = {{"replace", kReplace}, {"by", kBy}, {"which", kOnce},
                                        {"open", kOpen},       {"in", kIn}, {"tail", kTail}};
constexpr Grammar::Part kEveryParts[] = {{"replace", kReplace}, {"by", kBy}, {"which", kEvery},
                                         {"open", kOpen},       {"in", kIn}, {"tail", kTail}};

}  // namespace

bool build_replace(Draft& draft) {
  Task& task = draft.task;
  const auto& format = draft.format(notes_formats());
  const auto path = draft.new_path(format.extension);
  const auto title = draft.words.draw(Words::kProgram);
  const auto list = draft.random.chance(0.5) ? Words::kPerson : Words::kPlace;
  const auto old_word = draft.words.draw(list), new_word = draft.words.draw(list);
  const bool every = draft.random.chance(0.4);
  std::vector<std::string> lines;
  const size_t count = 3 + draft.random.below(2), first = draft.random.below(2);
  for (size_t i = 0; i < count; ++i) {
    const bool here = i == first || (every && i == first + 1 + draft.random.below(1));
    const auto person = here && list == Words::kPerson ? old_word : draft.words.person();
    const auto place = here && list == Words::kPlace ? old_word : draft.words.draw(Words::kPlace);
    lines.push_back(person + (draft.random.chance(0.5) ? " travels to " : " writes from ") + place);
  }
  const auto content = format.render(title, lines);
  task.files[path] = content;
  if (draft.random.chance(0.5)) add_notes_file(draft);
  if (count_in(content, old_word) != (every ? 2 : 1) || count_in(content, new_word) != 0) return false;

  draft.instruct(every ? Grammar{kReplaceFrames, kEveryParts} : Grammar{kReplaceFrames, kOnceParts},
                 {{"old", old_word}, {"new", new_word}, {"file", path}});
  for (auto& line : lines) {
    if (const size_t at = line.find(old_word); at != std::string::npos) line.replace(at, old_word.size(), new_word);
  }
  task.expectation.files = task.files;
  (*task.expectation.files)[path] = format.render(title, lines);
  if (draft.random.chance(0.3)) task.solution.turns.push_back({read_call(path)});
  task.solution.turns.push_back({replace_call(path, old_word, new_word, every)});
  return true;
}

}  // namespace tandem::envs
