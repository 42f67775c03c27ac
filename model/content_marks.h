// Keeps the text of special tokens in what a conversation says apart from the tokens that a template writes.
//
// Before rendering, such texts are replaced in the strings of messages and tools by numbers that stand nowhere else,
// which templates trim, join and escape like any word; after it the texts are put back, and their places are known.
// Beginnings of a special token at the end of a string, and ends at its beginning, count too, so that strings that a
// template joins make no token together.
//
// Thread safety: none; a value for one rendering.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/added_tokens.h"

namespace tandem::model {

struct Rendered;

class ContentMarks {
 public:
  // `elsewhere`: text that the rendering may have beside the strings that are marked.
  ContentMarks(const std::vector<std::string>& special_texts, std::string elsewhere);

  // All strings in it, but for keys and roles. The first call decides on the numbers, so it is given everything.
  Json mark(const Json& value);

  // Puts the texts back, and gives their places in the result, in order. kInvalid where a template has cut one.
  Result<std::vector<std::pair<size_t, size_t>>> restore(Rendered& rendered) const;

 private:
  Json marked(const Json& value);
  std::string marked_text(const std::string& text);
  std::string number_of(std::string text);

  const std::vector<std::string>& special_texts_;
  std::string elsewhere_;
  AddedTokenFinder finder_;
  std::string nonce_;
  std::vector<std::string> texts_;  // by number
};

}  // namespace tandem::model
