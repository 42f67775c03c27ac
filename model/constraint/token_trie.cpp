#include "model/constraint/token_trie.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "model/constraint/string_state.h"

namespace tandem::model::constraint {

namespace {
std::atomic<uint64_t> token_trie_serials{1};

// Punctuation, which rules tell apart, each by itself; letters and digits in the groups that patterns have.
constexpr std::array<uint8_t, 128> kClasses = [] {
  std::array<uint8_t, 128> classes{};
  uint8_t next = 6;
  for (size_t byte = 0; byte < 128; ++byte) {
    const bool hexadecimal = (byte | 32) <= 'f';
    if (byte >= '0' && byte <= '9')
      classes[byte] = 0;
    else if (byte >= 'a' && byte <= 'z')
      classes[byte] = hexadecimal ? 1 : 2;
    else if (byte >= 'A' && byte <= 'Z')
      classes[byte] = hexadecimal ? 3 : 4;
    else if ((byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r') || byte == 127)
      classes[byte] = 5;
    else
      classes[byte] = next++;
  }
  return classes;
}();
static_assert(*std::max_element(kClasses.begin(), kClasses.end()) < 62);
}  // namespace

uint64_t TokenTrie::class_of(uint8_t ascii) { return uint64_t{1} << kClasses[ascii]; }

TokenTrie::TokenTrie(std::vector<Entry> entries) : nodes_(1), serial_(token_trie_serials++) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token; });
  fill(kRoot, entries, 0);
}

TokenTrie::TokenTrie(std::span<const Branch> branches, bool (*keep)(uint8_t))
    : nodes_(1), serial_(token_trie_serials++) {
  merge(kRoot, branches, keep);
}

// `entries` share their first `depth` bytes. Children lie side by side.
void TokenTrie::fill(uint32_t number, std::span<const Entry> entries, size_t depth) {
  nodes_[number].tokens_begin = static_cast<uint32_t>(tokens_.size());
  while (!entries.empty() && entries.front().bytes.size() == depth) {
    tokens_.push_back(entries.front().token);
    entries = entries.subspan(1);
  }
  nodes_[number].tokens_end = static_cast<uint32_t>(tokens_.size());
  const auto first = static_cast<uint32_t>(nodes_.size());
  std::vector<size_t> begins;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto byte = static_cast<uint8_t>(entries[i].bytes[depth]);
    if (i > 0 && static_cast<uint8_t>(entries[i - 1].bytes[depth]) == byte) continue;
    begins.push_back(i);
    nodes_.push_back({.byte = byte});
  }
  nodes_[number].first_child = first;
  nodes_[number].children = static_cast<uint16_t>(begins.size());
  for (size_t c = 0; c < begins.size(); ++c) {
    const size_t end = c + 1 < begins.size() ? begins[c + 1] : entries.size();
    fill(first + static_cast<uint32_t>(c), entries.subspan(begins[c], end - begins[c]), depth + 1);
  }
  summarize(number);
}

void TokenTrie::merge(uint32_t number, std::span<const Branch> branches, bool (*keep)(uint8_t)) {
  nodes_[number].tokens_begin = static_cast<uint32_t>(tokens_.size());
  std::vector<Branch> below;
  const auto byte_of = [](const Branch& branch) { return branch.trie->node(branch.node).byte; };
  for (const auto& [trie, root] : branches) {
    const auto tokens = trie->tokens(root);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    const Node& node = trie->node(root);
    for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c)
      if (keep == nullptr || keep(trie->node(c).byte)) below.push_back({trie, c});
  }
  nodes_[number].tokens_end = static_cast<uint32_t>(tokens_.size());
  if (branches.size() > 1)
    std::stable_sort(below.begin(), below.end(),
                     [&](const Branch& a, const Branch& b) { return byte_of(a) < byte_of(b); });
  const auto first = static_cast<uint32_t>(nodes_.size());
  for (size_t i = 0; i < below.size(); ++i)
    if (i == 0 || byte_of(below[i]) != byte_of(below[i - 1])) nodes_.push_back({.byte = byte_of(below[i])});
  nodes_[number].first_child = first;
  nodes_[number].children = static_cast<uint16_t>(nodes_.size() - first);
  uint32_t child = first;
  for (size_t begin = 0, end = 0; begin < below.size(); begin = end) {
    while (end < below.size() && byte_of(below[end]) == byte_of(below[begin])) ++end;
    merge(child++, std::span(below).subspan(begin, end - begin), nullptr);
  }
  summarize(number);
}

// When its children are.
void TokenTrie::summarize(uint32_t number) {
  Node& node = nodes_[number];
  node.below_end = static_cast<uint32_t>(tokens_.size());
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
    const Node& child = nodes_[c];
    if (child.byte < 0x80) {
      node.below |= class_of(child.byte) | child.below;
      continue;
    }
    StringState state;
    const bool begins = step_string(nullptr, state, child.byte) == ByteStep::kInside;
    node.below |= begins ? kWhole | below_within(c, state.decoder) : kBroken;
  }
}

// As `below`, of a node in the middle of a character.
uint64_t TokenTrie::below_within(uint32_t number, uint32_t decoder) const {
  const Node& node = nodes_[number];
  if (decoder == 0) return node.below;
  if (node.tokens_begin != node.tokens_end) return kBroken;
  uint64_t below = 0;
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
    StringState state{.decoder = decoder};
    const bool goes_on = step_string(nullptr, state, nodes_[c].byte) == ByteStep::kInside;
    below |= goes_on ? below_within(c, state.decoder) : kBroken;
  }
  return below;
}

uint32_t TokenTrie::child(uint32_t number, uint8_t byte) const {
  const Node& node = nodes_[number];
  const auto begin = nodes_.begin() + node.first_child, end = begin + node.children;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : kNoNode;
}

TokenBranches::TokenBranches(std::span<const TokenTrie::Branch> branches, const TokenTrie& lasting,
                             bool (*keep)(uint8_t)) {
  std::vector<TokenTrie::Branch> small;
  for (const auto& branch : branches) {
    const auto& node = branch.trie->node(branch.node);
    const bool stays = keep == nullptr && branch.trie == &lasting && node.below_end - node.tokens_begin >= kLarge;
    (stays ? branches_ : small).push_back(branch);
  }
  if (small.empty()) return;
  merged_ = std::make_shared<const TokenTrie>(small, keep);
  branches_.push_back({merged_.get(), TokenTrie::kRoot});
}

size_t TokenBranches::bytes() const {
  return branches_.size() * sizeof(TokenTrie::Branch) + (merged_ ? merged_->size() * sizeof(TokenTrie::Node) : 0);
}

}  // namespace tandem::model::constraint
