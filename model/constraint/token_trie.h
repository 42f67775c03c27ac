// Tokens by their bytes, as a tree: what is refused after some bytes is refused for all tokens that begin with them.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
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
  };
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNoNode = UINT32_MAX;

  explicit TokenTrie(std::vector<Entry> entries);
  // What follows `roots`, nodes of another one, laid over each other; of their children those by the bytes that `keep`
  // says, null: all.
  TokenTrie(const TokenTrie& other, std::vector<uint32_t> roots, bool (*keep)(uint8_t) = nullptr);

  const Node& node(uint32_t number) const { return nodes_[number]; }
  std::span<const TokenId> tokens(uint32_t number) const {
    const Node& n = nodes_[number];
    return std::span(tokens_).subspan(n.tokens_begin, n.tokens_end - n.tokens_begin);
  }
  // The child by this byte, or kNoNode.
  uint32_t child(uint32_t number, uint8_t byte) const;
  bool empty() const { return nodes_.size() == 1 && tokens_.empty(); }
  size_t size() const { return nodes_.size(); }
  uint64_t serial() const { return serial_; }  // differs between any two of a process

 private:
  void fill(uint32_t number, std::span<const Entry> entries, size_t depth);
  void merge(uint32_t number, const TokenTrie& other, const std::vector<uint32_t>& roots, bool (*keep)(uint8_t));

  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  uint64_t serial_;
};

}  // namespace tandem::model::constraint
