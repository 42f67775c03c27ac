// One text under a grammar, token by token.
//
// `mask` says which tokens may come next: exactly those after which the text can still be completed. `accept` takes
// one. A mark of a dialect that the vocabulary has as a special token is that token and nothing else, and stands where
// the mark does. Other special tokens and end tokens are in no mask: `complete` says when the text may end.
//
// Thread safety: none; many matchers may share grammar and vocabulary.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/constraint/machine.h"
#include "model/constraint/vocabulary.h"

namespace tandem::model::constraint {

class Matcher {
 public:
  Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  // Overwrites `mask`, of vocabulary().mask_words() words, a bit for each token.
  void mask(std::span<uint64_t> mask);
  // kInvalid, with nothing changed, for a token that the mask does not have; kExhausted where the text can be read in
  // more ways than are followed.
  Status accept(TokenId token);
  Status accept_text(std::string_view bytes);
  bool complete() const;
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  static constexpr size_t kMaxReadings = 10'000;

  // Where tokens are collected: in a mask, or in a list where some of them are taken out again.
  struct Sink {
    std::span<uint64_t> bits;
    std::vector<TokenId>* list = nullptr;
    void add(std::span<const TokenId> tokens);
    void add(const InnerTokens& tokens);
  };

  Status go_on(std::vector<StackId> stacks);
  bool follow_mark(std::string_view mark, std::vector<StackId>& stacks);
  bool follow(std::string_view bytes, std::vector<StackId>& stacks);
  enum class Space : uint8_t { kTaken, kOver };
  // `kOver`: white space that the trie has here has been looked at.
  void walk(const TokenTrie& trie, uint32_t node, StackId stack, Sink& sink, Space space = Space::kTaken);
  void walk_inside(const TokenTrie& trie, uint32_t node, const InnerState& state, StackId behind, Sink& sink);
  void walk_key(const TokenTrie& trie, uint32_t node, StackId stack, Sink& sink);
  // The node behind `rest` and a quote; what ends on the way is added where a sink is given.
  uint32_t descend(const TokenTrie& trie, uint32_t node, std::string_view rest, Sink* sink) const;
  void collect(const TokenTrie& trie, uint32_t node, std::vector<TokenId>& out) const;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<std::pair<std::string, TokenId>> marks_;  // of calls, that are special tokens
  Machine machine_;
  std::vector<StackId> stacks_;
  std::vector<TokenId> doubtful_;  // of a mask being made: to be followed one by one
  uint64_t text_tag_ = 0;
};

// Puts the vocabulary in order by what the grammar's strings, numbers and texts can tell apart, and finds the mask that
// its texts begin with, so that no token waits for it: some ms, once for a grammar. From any thread.
void prepare(const std::shared_ptr<const Grammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary);

}  // namespace tandem::model::constraint
