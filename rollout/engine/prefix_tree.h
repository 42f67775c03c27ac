// Which pages hold the keys and values of which tokens: a radix tree whose edges are pages.
//
// A node is a whole page and the tokens that it was computed from, below the node of the page before; what it was
// computed from is thus all tokens from the start. Beside whole pages there are tails: pages of live sequences of which
// the first tokens are known to stay, so that a prompt that ends within a page can be copied. Children of a node lie in
// the order of their tokens, so the longest common prefix with any of them is found at a neighbour: a lookup takes
// O(pages * log(children)), however many sequences there are.
//
// Entries are found under their own salt only: each salt has a tree, and all trees share one LRU order.
//
// Pages that were entered in step n can be read from step n + 1 on. The tree holds no references: the owner retains the
// pages that it returns as new, and releases those that it returns as gone.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::rollout {

class PrefixTree {
 public:
  explicit PrefixTree(int page_tokens) : page_tokens_(page_tokens) {}

  struct Match {
    std::vector<int> pages;  // whole, from the first token on
    int source = -1;         // page whose first `copied` tokens follow those; -1: none
    int copied = 0;
    int coming = 0;  // tokens of the longest match that can be read a step later
  };
  // Finds the longest prefix of `tokens`. Counts as a use of the pages found.
  Match find(std::span<const int32_t> tokens, uint64_t step, std::string_view salt = "");

  // `pages` are those of `tokens`, which are all known. Returns the whole pages that are new here; the others were
  // there in other pages. `tail`: also the tokens behind the last whole page, until `forget_tail`.
  std::vector<int> insert(std::span<const int32_t> tokens, std::span<const int> pages, bool tail, uint64_t step,
                          std::string_view salt = "");
  // The page is no longer a tail, if it was one.
  void forget_tail(int page);

  // Evicts the least recently used leaf page for which `free` returns true.
  std::optional<int> evict(const std::function<bool(int page)>& free);
  // Removes all pages, tails too; returns the whole ones.
  std::vector<int> clear();

  size_t pages() const { return whole_; }

 private:
  using Tokens = std::vector<int32_t>;
  struct Node {
    int page = -1;
    bool whole = true;
    uint64_t step = 0;       // in which it was entered
    uint64_t used = 0;       // counts uses; unique
    Node* parent = nullptr;  // of a root: null
    std::map<Tokens, Node> children;
    std::map<Tokens, Node>::iterator self;                    // among the parent's children
    std::map<std::string, Node, std::less<>>::iterator root;  // of a root: its place
  };
  using Roots = std::map<std::string, Node, std::less<>>;
  struct Common {
    int tokens = 0;
    Node* node = nullptr;
  };
  // The children of `node` with the longest common prefix with `tokens`: of all, and of those that can be read.
  std::pair<Common, Common> closest(Node& node, std::span<const int32_t> tokens, uint64_t step);
  std::vector<int> insert_below(Node& root, std::span<const int32_t> tokens, std::span<const int> pages, bool tail,
                                uint64_t step);
  Node& add(Node& parent, Tokens tokens, int page, bool whole, uint64_t step);
  void remove(Node& node);
  void drop_if_empty(Node& root);
  Node* take_tail(int page);  // its parent, which may be left empty
  void use(Node& node);

  const int page_tokens_;
  Roots roots_;  // by salt; none is empty
  size_t whole_ = 0;
  uint64_t uses_ = 0;
  std::map<uint64_t, Node*> leaves_;      // whole pages without children, by their last use
  std::unordered_map<int, Node*> tails_;  // by page
};

}  // namespace tandem::rollout
