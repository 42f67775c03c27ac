// The instruction of a task that is made of a commit: what its message says, and what its tests need beside that.
//
// Pure functions.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// The message without trailers (Signed-off-by and the like), links and numbers of issues, and names of commits; empty
// where nothing is left, or where it is no text.
std::string message_of_task(std::string_view message);

size_t words_of_message(std::string_view text);

// Words in code: names, and texts in quotes that stand on one line. Comments and Python's long strings are left out. A
// reader for many languages: it knows `#`, `//` and `/* */` by the end of the path.
struct CodeWords {
  std::set<std::string> names;  // of three characters at least
  std::set<std::string> texts;  // of 3 to 80 bytes
};
CodeWords words_of_code(std::string_view path, std::string_view code);

// One side of a change: files before and after, by path.
struct ChangedText {
  std::string path, before, after;
};

// Names and texts that are new in the source and new in the tests, and that the message does not say: who has only the
// message cannot know them. Sorted; texts are in quotes.
std::vector<std::string> untold_words(const std::vector<ChangedText>& source, const std::vector<ChangedText>& tests,
                                      std::string_view message);

// `project` is what the repository is called.
std::string instruction_of_commit(std::string_view project, std::string_view message,
                                  const std::vector<std::string>& untold);

}  // namespace tandem::envs
