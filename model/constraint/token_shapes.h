// The tokens of a vocabulary by what a rule of strings can tell of them.
//
// Of "cat" and "dog" the pattern ^[a-z]+$ knows no more than that they are three small letters: tokens whose characters
// a rule does not tell apart lie together, and a hundred thousand of them come down to some hundred shapes. What a
// state of the rule allows is then found by looking at each shape once.
//
// Thread safety: const methods from any thread. The trie must outlive what is made of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/constraint/string_state.h"
#include "model/constraint/token_trie.h"

namespace tandem::model::constraint {

class TokenShapes {
 public:
  // By what most rules tell no further: digits, small letters, capitals, all characters behind ASCII, and each other
  // one by itself.
  static std::unique_ptr<const TokenShapes> of_strings(const TokenTrie& trie, size_t mask_words);
  // By what the automaton tells apart; null: by lengths alone. `strings` are those of the same trie. Null where they
  // are nearly as many as the tokens, and not worth it.
  static std::unique_ptr<const TokenShapes> of_rule(const TokenShapes& strings, const Dfa* dfa);
  // By how much white space of JSON they begin with.
  static std::unique_ptr<const TokenShapes> of_spaces(const TokenTrie& trie, size_t mask_words);

  // Guards of strings (string_state.h) that shapes tell apart.
  static bool tells(uint8_t guard);

  struct Found {
    std::vector<TokenId> tokens;  // that stay inside
    std::vector<uint64_t> bits;   // instead, where they are many
    TokenBranches behind;         // what tokens say behind an end
  };
  // `state` is between two characters.
  Found find(const Dfa* dfa, const StringState& state) const;

  size_t bytes() const { return bytes_; }  // of memory, about

 private:
  struct Edge {
    uint32_t label;
    char32_t sample;  // of its characters
    bool escaped;
    uint32_t child;
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<TokenId> tokens;                                       // that end here
    std::vector<uint64_t> bits;                                        // instead
    std::vector<uint32_t> ends;                                        // nodes of the trie in which the string is over
    std::map<std::string, std::vector<TokenId>, std::less<>> partial;  // that end within a character, by its bytes
  };
  // The label of a character in a rule; empty where the rule never allows it.
  using Labels = std::function<std::optional<uint32_t>(char32_t character, bool escaped)>;

  TokenShapes(const TokenTrie& trie, size_t mask_words, bool (*keep)(uint8_t))
      : trie_(trie), mask_words_(mask_words), keep_(keep), nodes_(1) {}
  uint32_t child(uint32_t number, uint32_t label, char32_t sample, bool escaped);
  bool grow(uint32_t number, uint32_t trie_node, const StringState& state, std::string& begun, const Labels& labels,
            size_t most);
  void merge(uint32_t number, const TokenShapes& finer, const std::vector<uint32_t>& sources, const Labels& labels);
  void grow_spaces(uint32_t number, uint32_t trie_node);
  void finish();
  void add(std::span<const TokenId> tokens, Found& found) const;
  void follow(uint32_t number, const Dfa* dfa, const StringState& state, Found& found,
              std::vector<uint32_t>& ends) const;
  TokenBranches behind(const std::vector<uint32_t>& numbers) const;

  static constexpr size_t kMaxKept = 256, kFewEnds = 4;

  const TokenTrie& trie_;
  size_t mask_words_;
  bool (*keep_)(uint8_t);
  std::vector<Node> nodes_;
  size_t bytes_ = 0;

  mutable std::mutex mutex_;
  mutable std::map<std::vector<uint32_t>, TokenBranches> behind_;  // by the nodes whose ends they are
};

// Tokens that can follow white space where a constraint allows it: values, separators, and tags of calls. Words, most
// tokens after a space in a vocabulary, cannot.
bool follows_space(uint8_t byte);

}  // namespace tandem::model::constraint
