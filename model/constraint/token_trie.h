// Tokens by their bytes, as a tree: what is refused after some bytes is refused for all tokens that begin with them.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/token.h"

namespace tandem::model::constraint {

class TokenTrie {
 public:
  struct Entry {
    std::string_view bytes;  // not empty
    TokenId token = 0;
  };
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;  // by byte, ascending
    uint8_t byte = 0;
    uint32_t tokens_begin = 0, tokens_end = 0;  // that end here
    uint32_t below_end = 0;                     // those from tokens_end on end below
    uint64_t below = 0;                         // classes of the bytes below, as of a place between two characters
  };
  // Classes of bytes, a bit each: of ASCII by class_of; of all others, kWhole where they are whole characters of UTF-8,
  // or kBroken.
  static constexpr uint64_t kWhole = uint64_t{1} << 62, kBroken = uint64_t{1} << 63;
  static uint64_t class_of(uint8_t ascii);
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNoNode = UINT32_MAX;

  explicit TokenTrie(std::vector<Entry> entries);
  struct Branch {
    const TokenTrie* trie = nullptr;
    uint32_t node = kRoot;
  };
  // What follows these, laid over each other; of their children those by the bytes that `keep` says, null: all.
  explicit TokenTrie(std::span<const Branch> branches, bool (*keep)(uint8_t) = nullptr);

  const Node& node(uint32_t number) const { return nodes_[number]; }
  std::span<const TokenId> tokens(uint32_t number) const {
    const Node& n = nodes_[number];
    return std::span(tokens_).subspan(n.tokens_begin, n.tokens_end - n.tokens_begin);
  }
  std::span<const TokenId> tokens_below(uint32_t number) const {
    const Node& n = nodes_[number];
    return std::span(tokens_).subspan(n.tokens_end, n.below_end - n.tokens_end);
  }
  // The child by this byte, or kNoNode.
  uint32_t child(uint32_t number, uint8_t byte) const;
  bool empty() const { return nodes_.size() == 1 && tokens_.empty(); }
  size_t size() const { return nodes_.size(); }
  uint64_t serial() const { return serial_; }  // differs between any two of a process

 private:
  void fill(uint32_t number, std::span<const Entry> entries, size_t depth);
  void merge(uint32_t number, std::span<const Branch> branches, bool (*keep)(uint8_t));

  void summarize(uint32_t number);
  uint64_t below_within(uint32_t number, uint32_t decoder) const;

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  uint64_t serial_;
};

// The union of the subtrees of several trie nodes; large subtrees are referenced, not copied.
//
// Thread safety: a value.
class TokenBranches {
 public:
  TokenBranches() = default;
  // Nodes of `lasting`, which must outlive this, need no copy. `keep`: as of a TokenTrie.
  TokenBranches(std::span<const TokenTrie::Branch> branches, const TokenTrie& lasting, bool (*keep)(uint8_t));

  bool empty() const { return branches_.empty(); }
  auto begin() const { return branches_.begin(); }
  auto end() const { return branches_.end(); }
  size_t bytes() const;  // of memory, about

 private:
  static constexpr uint32_t kLarge = 256;  // tokens

  std::vector<TokenTrie::Branch> branches_;
  std::shared_ptr<const TokenTrie> merged_;
};

}  // namespace tandem::model::constraint
