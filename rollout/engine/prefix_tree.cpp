#include "rollout/engine/prefix_tree.h"

#include <algorithm>

namespace tandem::rollout {

namespace {

// How many neighbours on each side are looked at for one that can be read; those of the same step hide few.
constexpr int kNeighbours = 8;

int common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t count = std::min(a.size(), b.size());
  return static_cast<int>(std::mismatch(a.begin(), a.begin() + count, b.begin()).first - a.begin());
}

}  // namespace

std::pair<PrefixTree::Common, PrefixTree::Common> PrefixTree::closest(Node& node, std::span<const int32_t> tokens,
                                                                      uint64_t step) {
  Common of_all, readable;
  const auto look = [&](auto child) {
    const int common = common_prefix(tokens, child->first);
    if (common > of_all.tokens) of_all = {common, &child->second};
    if (common > readable.tokens && child->second.step < step) readable = {common, &child->second};
    return child->second.step < step;
  };
  const auto middle = node.children.lower_bound(Tokens(tokens.begin(), tokens.end()));
  auto next = middle;
  for (int i = 0; i < kNeighbours && next != node.children.end(); ++i) {
    if (look(next++)) break;
  }
  auto before = middle;
  for (int i = 0; i < kNeighbours && before != node.children.begin(); ++i) {
    if (look(--before)) break;
  }
  return {of_all, readable};
}

PrefixTree::Match PrefixTree::find(std::span<const int32_t> tokens, uint64_t step, std::string_view salt) {
  Match match;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return match;
  Node *readable = &root->second, *any = &root->second;
  for (size_t at = 0; at < tokens.size(); at += page_tokens_) {
    const auto page = tokens.subspan(at, std::min<size_t>(page_tokens_, tokens.size() - at));
    const auto [of_all, ready] = closest(*any, page, step);
    match.coming += of_all.tokens;
    if (readable == any && ready.tokens > 0) {
      use(*ready.node);
      if (ready.node->whole && ready.tokens == page_tokens_) {
        match.pages.push_back(ready.node->page);
        readable = ready.node;
      } else {
        match.source = ready.node->page;
        match.copied = ready.tokens;
      }
    }
    if (of_all.tokens < page_tokens_ || !of_all.node->whole) break;
    any = of_all.node;
  }
  return match;
}

std::vector<int> PrefixTree::insert(std::span<const int32_t> tokens, std::span<const int> pages, bool tail,
                                    uint64_t step, std::string_view salt) {
  auto root = roots_.find(salt);
  if (root == roots_.end()) {
    root = roots_.emplace(salt, Node{}).first;
    root->second.root = root;
  }
  auto fresh = insert_below(root->second, tokens, pages, tail, step);
  drop_if_empty(root->second);
  return fresh;
}

std::vector<int> PrefixTree::insert_below(Node& root, std::span<const int32_t> tokens, std::span<const int> pages,
                                          bool tail, uint64_t step) {
  std::vector<int> fresh;
  Node* node = &root;
  size_t at = 0;
  for (size_t i = 0; at + page_tokens_ <= tokens.size(); ++i, at += page_tokens_) {
    Tokens key(tokens.begin() + at, tokens.begin() + at + page_tokens_);
    const auto found = node->children.find(key);
    if (found != node->children.end()) {
      node = &found->second;
      use(*node);
      continue;
    }
    take_tail(pages[i]);
    node = &add(*node, std::move(key), pages[i], true, step);
    fresh.push_back(pages[i]);
  }
  if (!tail || at == tokens.size()) return fresh;
  const int page = pages[at / page_tokens_];
  Tokens key(tokens.begin() + at, tokens.end());
  if (const auto known = tails_.find(page); known != tails_.end()) {
    if (known->second->self->first.size() >= key.size()) return fresh;
    take_tail(page);
  }
  if (node->children.contains(key)) return fresh;
  tails_[page] = &add(*node, std::move(key), page, false, step);
  return fresh;
}

void PrefixTree::forget_tail(int page) {
  if (Node* const parent = take_tail(page)) drop_if_empty(*parent);
}

PrefixTree::Node* PrefixTree::take_tail(int page) {
  const auto found = tails_.find(page);
  if (found == tails_.end()) return nullptr;
  Node& node = *found->second;
  Node* const parent = node.parent;
  tails_.erase(found);
  remove(node);
  return parent;
}

std::optional<int> PrefixTree::evict(const std::function<bool(int page)>& free) {
  const auto found = std::ranges::find_if(leaves_, [&](const auto& leaf) { return free(leaf.second->page); });
  if (found == leaves_.end()) return {};
  Node& node = *found->second;
  Node& parent = *node.parent;
  const int page = node.page;
  remove(node);
  drop_if_empty(parent);
  return page;
}

std::vector<int> PrefixTree::clear() {
  std::vector<int> pages;
  const auto collect = [&](const auto& self, const Node& node) -> void {
    for (const auto& [tokens, child] : node.children) {
      if (child.whole) pages.push_back(child.page);
      self(self, child);
    }
  };
  for (const auto& [salt, root] : roots_) collect(collect, root);
  roots_.clear();
  leaves_.clear();
  tails_.clear();
  whole_ = 0;
  return pages;
}

PrefixTree::Node& PrefixTree::add(Node& parent, Tokens tokens, int page, bool whole, uint64_t step) {
  leaves_.erase(parent.used);
  const auto self = parent.children.emplace(std::move(tokens), Node{.page = page, .whole = whole, .step = step}).first;
  Node& node = self->second;
  node.parent = &parent;
  node.self = self;
  whole_ += whole ? 1 : 0;
  use(node);
  return node;
}

void PrefixTree::remove(Node& node) {
  leaves_.erase(node.used);
  whole_ -= node.whole ? 1 : 0;
  Node& parent = *node.parent;
  parent.children.erase(node.self);
  if (!parent.children.empty()) return;
  if (parent.parent != nullptr) leaves_[parent.used] = &parent;
}

void PrefixTree::drop_if_empty(Node& node) {
  if (node.parent == nullptr && node.children.empty()) roots_.erase(node.root);
}

void PrefixTree::use(Node& node) {
  leaves_.erase(node.used);
  node.used = ++uses_;
  if (node.whole && node.children.empty()) leaves_[node.used] = &node;
}

}  // namespace tandem::rollout
