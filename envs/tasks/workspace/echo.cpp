// echo: one given word into one given file, by one call. The simplest kind that there can be, for the job that learns
// in under a minute: it is asked for by name and is no part of the default list.
//
// Words are two syllables of capitals, so that a model of two layers and a tokenizer made on the spot can copy words
// that it never saw; files and contents have syllables of their own, and no extension. Whole words are held out as
// elsewhere.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kWrite[] = {"write",  "put",  "save",  "place",    "store", "set down", "enter",
                                       "record", "note", "leave", "put down", "keep",  "copy",     "add"};
constexpr std::string_view kEchoWord[] = {"{word}",         "the word {word}",  "just {word}",        "the text {word}",
                                          "only {word}",    "one word, {word}", "nothing but {word}", "the line {word}",
                                          "the name {word}"};
constexpr std::string_view kInto[] = {"to",
                                      "into",
                                      "in",
                                      "to the file",
                                      "into the file",
                                      "in a file",
                                      "inside",
                                      "as the file",
                                      "under the name",
                                      "to a new file",
                                      "into a new file"};
constexpr std::string_view kEchoStop[] = {".",       ", please.",  " now.",          ", then stop.", " for me.",
                                          " today.", "; no more.", ". That is all.", " and stop."};
constexpr std::string_view kEchoFrames[] = {"<write> <word> <into> {file}<stop>",
                                            "<open> <write> <word> <into> {file}<stop>",
                                            "<into> {file}, <write> <word><stop>",
                                            "<open> <write>, <into> {file}, <word><stop>",
                                            "{file} should hold <word><stop>",
                                            "let {file} hold <word><stop>",
                                            "{file} is to contain <word><stop>",
                                            "<write>, <into> {file}, <word><stop>",
                                            "we need <word> <into> {file}<stop>",
                                            "<word> should stand <into> {file}<stop>",
                                            "there, <into> {file}, <write> <word><stop>",
                                            "<open> make sure that {file} holds <word><stop>"};
constexpr Grammar::Part kEchoParts[] = {
    {"write", kWrite}, {"word", kEchoWord}, {"into", kInto}, {"open", kOpen}, {"stop", kEchoStop}};

// Consonants tell a file's name from what goes into it, vowels the first syllable from the second.
constexpr std::string_view kFileConsonants = "BDFGKL", kWordConsonants = "MNPRST";
constexpr std::string_view kFirstVowels = "AEI", kSecondVowels = "OU";

std::string draw_word(Draft& draft, std::string_view consonants) {
  for (;;) {
    const std::string word = {draft.random.pick(consonants), draft.random.pick(kFirstVowels),
                              draft.random.pick(consonants), draft.random.pick(kSecondVowels)};
    if (held_out(word) != draft.sides.new_names) continue;
    draft.task.vocabulary.push_back(word);
    return word;
  }
}

}  // namespace

bool build_echo(Draft& draft) {
  Task& task = draft.task;
  task.max_turns = 2;
  task.files["start.txt"] = "nothing here\n";
  const auto file = draw_word(draft, kFileConsonants), word = draw_word(draft, kWordConsonants);
  draft.instruct({kEchoFrames, kEchoParts}, {{"word", word}, {"file", file}});
  task.expectation.files = task.files;
  (*task.expectation.files)[file] = word + "\n";
  task.solution.turns = {{Call{"write", {{"file_path", file}, {"contents", word + "\n"}}}}};
  return true;
}

}  // namespace tandem::envs
