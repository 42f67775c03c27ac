// Finding the tokens that stand in a text as they are written (special tokens and others that were added), as the
// `AddedVocabulary` of HF tokenizers finds them: leftmost, and the longest of those that start there.
//
// Thread safety: const methods from any thread.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/token.h"

namespace tandem::model {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where no word character stands on either side
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = false;   // looked for in the normalised text, else in the text as it came
  bool special = false;
};

class AddedTokenFinder {
 public:
  AddedTokenFinder() : starts_{} {}
  // `pattern` is what is looked for: the token's content, normalised where the token wants that. Empty ones are
  // ignored.
  void add(const AddedToken& token, std::string_view pattern);

  struct Part {
    std::string_view text;
    TokenId id = -1;  // -1: text between tokens
  };
  // `text` in order; appended to `out`. Special tokens that overlap one of the places `plain` are text.
  using Places = std::span<const std::pair<size_t, size_t>>;
  void split(std::string_view text, std::vector<Part>& out, Places plain = {}) const;

  bool has_special() const;

  bool empty() const { return tokens_.empty(); }

 private:
  // The longest pattern that starts at `at`: its index, -1 if none.
  int longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<size_t> lengths_;              // of the patterns
  std::unordered_map<uint64_t, int> edges_;  // trie: (node, byte) -> node
  std::vector<int> ends_ = {-1};             // by node: the pattern that ends there
  std::array<bool, 256> starts_;             // first bytes of patterns
};

}  // namespace tandem::model
