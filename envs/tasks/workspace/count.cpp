// count: how many lines of a file have a word.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kCount[] = {"count",  "work out",  "determine", "find out",   "check", "tell me", "see",
                                       "report", "calculate", "establish", "figure out", "say",   "give me", "measure"};
constexpr std::string_view kMany[] = {"how many lines",   "the number of lines that", "how many rows",
                                      "how many entries", "how many of the lines",    "the count of lines that",
                                      "how many records", "how many different lines", "the number of entries that",
                                      "how many items"};
constexpr std::string_view kHave[] = {"contain", "have",       "mention", "show",    "carry", "include",
                                      "say",     "are marked", "hold",    "feature", "read",  "are labelled"};
constexpr std::string_view kCountFrames[] = {"<count> <many> <have> {word} in {file}<tail>",
                                             "in {file}, <count> <many> <have> {word}<tail>",
                                             "<open> <count> <many> <have> {word} in {file}<tail>",
                                             "<open> <count> <many> in {file} <have> {word}<tail>",
                                             "<count> <many> in {file} <have> the word {word}<tail>",
                                             "{file}: <count> <many> <have> {word}<tail>",
                                             "<many> <have> {word} in {file}? <count> it<tail>",
                                             "<many> in {file} <have> {word}? <count> it<tail>",
                                             "I wonder <many> in {file} <have> {word}; <count> that<tail>",
                                             "look at {file} and <count> <many> <have> {word}<tail>",
                                             "go through {file} and <count> <many> <have> {word}<tail>",
                                             "for {file}, <count> <many> <have> \"{word}\"<tail>",
                                             "about the word {word} in {file}: <count> <many> <have> it<tail>",
                                             "<count> <many> <have> \"{word}\" in {file}<tail>"};
constexpr Grammar::Part kCountParts[] = {
    {"count", kCount}, {"many", kMany}, {"have", kHave}, {"open", kOpen}, {"tail", kReport}};

}  // namespace

bool build_count(Draft& draft) {
  Task& task = draft.task;
  const auto& format = draft.format(records_formats());
  const auto path = draft.new_path(format.extension);
  const std::string word = draft.words.draw(Words::kAdjective);
  const std::vector<std::string> others = {draft.words.draw(Words::kAdjective), draft.words.draw(Words::kAdjective)};
  const size_t rows = 6 + draft.random.below(6), wanted = 2 + draft.random.below(rows - 3);
  std::vector<std::string> states;
  for (size_t i = 0; i < rows; ++i) states.push_back(i < wanted ? word : draft.random.pick(others));
  draft.random.shuffle(states);
  std::vector<Entry> entries;
  for (const auto& state : states) {
    entries.push_back({std::string(draft.random.pick(side(words(Words::kThing), draft.sides.new_names))), state});
  }
  task.files[path] = format.render(entries);
  if (draft.random.chance(0.5)) add_notes_file(draft);
  if (count_in(task.files[path], word) != wanted || path.find(word) != std::string::npos) return false;

  draft.instruct({kCountFrames, kCountParts}, {{"word", word}, {"file", path}});
  task.expectation.files = task.files;
  task.expectation.answer = std::to_string(wanted);
  task.solution.turns = {{shell_call("grep -c " + word + " " + path)}};
  task.solution.answer = std::to_string(wanted);
  return true;
}

}  // namespace tandem::envs
