// The tokens that a constrained text is made of, with what is known of them whatever the grammar.
//
// Inside of a string, a key, a number, white space or free text, which tokens may come does not depend on what is
// around it, but for those that end it; and these can be looked at by what follows the end alone. Both are kept for
// each state: a large part of the vocabulary is looked at once for each, and not for each token of a text.
//
// Thread safety: const methods from any thread; what is kept is behind a mutex.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "model/constraint/dfa.h"
#include "model/constraint/token_shapes.h"
#include "model/constraint/token_trie.h"
#include "model/tokenizer.h"

namespace tandem::model::constraint {

// Where a text stands inside of something, by itself.
struct InnerState {
  enum Kind : uint8_t { kString, kKey, kNumber, kText, kSpace, kRaw };
  Kind kind = kString;
  const Dfa* dfa = nullptr;                                      // of strings with one, and numbers
  uint32_t a = 0, b = 0, c = 0;                                  // of white space: a, how much of it may still come
  const std::vector<std::array<uint32_t, 256>>* text = nullptr;  // steps of free text
  uint64_t text_tag = 0;                                         // of the tags that end it, or that it never has
  uint8_t guard = 0;                                             // of strings and keys
  bool less = false;
};

// Effects of tokens in such a state.
struct InnerTokens {
  std::vector<TokenId> accepted;  // that stay inside
  std::vector<uint64_t> bits;     // instead, where they are many
  bool ends_before = false;       // a number may end before the first byte
  TokenBranches behind;           // what tokens say behind an end further on
};

class Vocabulary {
 public:
  // Tokens are those with bytes that are neither special nor in `ends`. kInvalid where a byte that texts cannot do
  // without has no token of its own.
  static Result<std::shared_ptr<const Vocabulary>> create(const Tokenizer& tokenizer, std::span<const TokenId> ends);
  // By number, empty for those that are left out; and those among them that a constraint may want, by what they say.
  static Result<std::shared_ptr<const Vocabulary>> from_bytes(std::vector<std::string> bytes,
                                                              std::map<std::string, TokenId, std::less<>> special = {});

  // Words of 64 tokens in a mask.
  size_t mask_words() const { return (bytes_.size() + 63) / 64; }
  std::string_view bytes_of(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < bytes_.size() ? std::string_view(bytes_[token])
                                                                    : std::string_view();
  }
  const TokenTrie& trie() const { return *trie_; }
  // The special token that says this: it is no part of a text, but a mark of a dialect may be it.
  std::optional<TokenId> special(std::string_view text) const {
    const auto found = special_.find(text);
    return found == special_.end() ? std::nullopt : std::optional(found->second);
  }

  // `trie` is this one's, or one that came from here.
  std::shared_ptr<const InnerTokens> inside(const TokenTrie& trie, uint32_t node, InnerState state) const;

 private:
  struct Key {
    uint64_t trie, automaton;
    uint32_t node, a, b, c;
    uint8_t kind, guard;
    bool less;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr uint32_t kLargeBranch = 1024;  // tokens
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;

  Vocabulary(std::vector<std::string> bytes, std::map<std::string, TokenId, std::less<>> special);
  InnerTokens look(const TokenTrie& trie, uint32_t node, const InnerState& state) const;
  InnerTokens walk(const TokenTrie& trie, uint32_t node, const InnerState& state) const;
  // Those that tell apart what the state's rule does, or null where each token is to be looked at.
  std::shared_ptr<const TokenShapes> shapes_of(const InnerState& state) const;
  void make_room(size_t bytes) const;  // under the mutex

  std::vector<std::string> bytes_;
  std::map<std::string, TokenId, std::less<>> special_;
  std::unique_ptr<const TokenTrie> trie_;
  uint32_t longest_ = 0;  // bytes of a token
  std::unique_ptr<const TokenShapes> strings_;
  std::shared_ptr<const TokenShapes> spaces_;

  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const InnerTokens>> kept_;
  mutable std::map<uint64_t, std::shared_ptr<const TokenShapes>> shapes_;  // by automaton, 0: by lengths
  mutable size_t kept_bytes_ = 0;
};

}  // namespace tandem::model::constraint
