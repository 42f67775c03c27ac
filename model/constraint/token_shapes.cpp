#include "model/constraint/token_shapes.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace tandem::model::constraint {

namespace {

// The characters that guards look at, each by itself, and those whose first byte a guard may be.
constexpr char32_t kFirstOfWide = 0xF000, kLastOfWide = 0xFFFF;
constexpr uint8_t kFirstByteOfWide = 0xEF;
uint32_t mark_of(char32_t c) {
  if (c == '<') return 1;
  if (c == '/') return 2;
  if (c == '|') return 3;
  return c >= kFirstOfWide && c <= kLastOfWide ? 4 : 0;
}
constexpr uint32_t kMarks = 5;

// The first of the characters that most rules do not tell apart from this one.
char32_t sample_of(char32_t c) {
  if (c >= '0' && c <= '9') return '0';
  if (c >= 'a' && c <= 'z') return 'a';
  if (c >= 'A' && c <= 'Z') return 'A';
  if (c < 0x80) return c;
  return c >= kFirstOfWide && c <= kLastOfWide ? kFirstOfWide : 0x80;
}

// A whole character as step_string has taken it, by its bytes.
char32_t character_of(std::string_view bytes) {
  if (bytes[0] != '\\') return next_character(bytes).character;
  const auto digits = [&](size_t at) {
    return static_cast<char32_t>(std::stoul(std::string(bytes.substr(at, 4)), nullptr, 16));
  };
  switch (bytes[1]) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'u':
      return bytes.size() == 6 ? digits(2) : 0x10000 + ((digits(2) - 0xD800) << 10) + (digits(8) - 0xDC00);
    default:
      return static_cast<uint8_t>(bytes[1]);
  }
}

// Whether the automaton tells no characters apart that sample_of does not.
bool is_coarse(const Dfa& dfa, const std::vector<uint32_t>& columns) {
  const auto alike = [&](char32_t first, char32_t last) {
    for (char32_t c = first; c <= last; ++c)
      if (columns[dfa.class_of(c)] != columns[dfa.class_of(first)]) return false;
    return true;
  };
  if (!alike('0', '9') || !alike('a', 'z') || !alike('A', 'Z')) return false;
  for (size_t at = dfa.class_of(0x80); at < columns.size(); ++at)
    if (!dfa.is_of_surrogates(at) && columns[at] != columns[dfa.class_of(0x80)]) return false;
  return true;
}

}  // namespace

bool follows_space(uint8_t byte) {
  return (byte >= '0' && byte <= '9') ||
         std::string_view("\"{}[],:;-tfn<`").find(static_cast<char>(byte)) != std::string_view::npos;
}

bool TokenShapes::tells(uint8_t guard) {
  return guard == 0 || guard == '/' || guard == '|' || guard == kFirstByteOfWide;
}

std::unique_ptr<const TokenShapes> TokenShapes::of_strings(const TokenTrie& trie, size_t mask_words) {
  std::unique_ptr<TokenShapes> shapes(new TokenShapes(trie, mask_words, nullptr));
  std::string begun;
  shapes->grow(
      0, TokenTrie::kRoot, {}, begun, [](char32_t c, bool escaped) { return sample_of(c) * 2 + (escaped ? 1 : 0); },
      SIZE_MAX);
  return shapes;
}

std::unique_ptr<const TokenShapes> TokenShapes::of_rule(const TokenShapes& strings, const Dfa* dfa) {
  std::unique_ptr<TokenShapes> shapes(new TokenShapes(strings.trie_, strings.mask_words_, nullptr));
  std::vector<uint32_t> columns;
  if (dfa != nullptr) columns = dfa->columns();
  const Labels labels = [&](char32_t c, bool escaped) -> std::optional<uint32_t> {
    const uint32_t column = dfa == nullptr ? 0 : columns[dfa->class_of(c)];
    if (column == Dfa::kNoColumn) return std::nullopt;
    return (column * kMarks + mark_of(c)) * 2 + (escaped ? 1 : 0);
  };
  if (dfa == nullptr || is_coarse(*dfa, columns)) {
    shapes->merge(0, strings, {0}, labels);
  } else {
    std::string begun;
    if (!shapes->grow(0, TokenTrie::kRoot, {}, begun, labels, strings.trie_.size() / 8)) return nullptr;
  }
  shapes->finish();
  return shapes;
}

std::unique_ptr<const TokenShapes> TokenShapes::of_spaces(const TokenTrie& trie, size_t mask_words) {
  std::unique_ptr<TokenShapes> shapes(new TokenShapes(trie, mask_words, follows_space));
  shapes->grow_spaces(0, TokenTrie::kRoot);
  shapes->finish();
  return shapes;
}

uint32_t TokenShapes::child(uint32_t number, uint32_t label, char32_t sample, bool escaped) {
  for (const Edge& edge : nodes_[number].edges)
    if (edge.label == label) return edge.child;
  const auto fresh = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  nodes_[number].edges.push_back({label, sample, escaped, fresh});
  return fresh;
}

// From a node of the trie on, `begun` being the bytes of a character so far; false where there are more than `most`.
bool TokenShapes::grow(uint32_t number, uint32_t trie_node, const StringState& state, std::string& begun,
                       const Labels& labels, size_t most) {
  const auto& node = trie_.node(trie_node);
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
    StringState next = state;
    const auto step = step_string(nullptr, next, trie_.node(c).byte);
    if (step == ByteStep::kRefused) continue;
    if (step == ByteStep::kClosed) {
      nodes_[number].ends.push_back(c);
      continue;
    }
    begun.push_back(static_cast<char>(trie_.node(c).byte));
    const auto tokens = trie_.tokens(c);
    bool fits = true;
    if (next.decoder != 0) {
      if (!tokens.empty()) {
        auto& partial = nodes_[number].partial[begun];
        partial.insert(partial.end(), tokens.begin(), tokens.end());
      }
      fits = grow(number, c, next, begun, labels, most);
    } else {
      const char32_t character = character_of(begun);
      const bool escaped = begun[0] == '\\';
      if (const auto label = labels(character, escaped)) {
        const uint32_t to = child(number, *label, character, escaped);
        nodes_[to].tokens.insert(nodes_[to].tokens.end(), tokens.begin(), tokens.end());
        std::string none;
        fits = nodes_.size() <= most && grow(to, c, next, none, labels, most);
      }
    }
    begun.pop_back();
    if (!fits) return false;
  }
  return true;
}

// What `sources` of finer shapes have in common by these labels.
void TokenShapes::merge(uint32_t number, const TokenShapes& finer, const std::vector<uint32_t>& sources,
                        const Labels& labels) {
  std::map<uint32_t, std::vector<uint32_t>> below;  // by child
  for (const uint32_t source : sources) {
    const Node& from = finer.nodes_[source];
    Node& to = nodes_[number];
    to.tokens.insert(to.tokens.end(), from.tokens.begin(), from.tokens.end());
    to.ends.insert(to.ends.end(), from.ends.begin(), from.ends.end());
    for (const auto& [bytes, tokens] : from.partial) {
      auto& partial = to.partial[bytes];
      partial.insert(partial.end(), tokens.begin(), tokens.end());
    }
    for (const Edge& edge : from.edges)
      if (const auto label = labels(edge.sample, edge.escaped))
        below[child(number, *label, edge.sample, edge.escaped)].push_back(edge.child);
  }
  for (const auto& [to, children] : below) merge(to, finer, children, labels);
}

void TokenShapes::grow_spaces(uint32_t number, uint32_t trie_node) {
  const auto& node = trie_.node(trie_node);
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
    const uint8_t byte = trie_.node(c).byte;
    if (!is_json_space(byte)) continue;
    const uint32_t to = child(number, 0, ' ', false);
    const auto tokens = trie_.tokens(c);
    nodes_[to].tokens.insert(nodes_[to].tokens.end(), tokens.begin(), tokens.end());
    const auto& below = trie_.node(c);
    const auto follows = [&](uint32_t k) { return follows_space(trie_.node(k).byte); };
    for (uint32_t k = below.first_child; k < below.first_child + below.children; ++k) {
      if (!follows(k)) continue;
      nodes_[to].ends.push_back(c);
      break;
    }
    grow_spaces(to, c);
  }
}

void TokenShapes::finish() {
  for (Node& node : nodes_) {
    bytes_ += sizeof(Node) + node.edges.size() * sizeof(Edge) + node.ends.size() * 4 + node.tokens.size() * 4;
    if (node.tokens.size() <= mask_words_ / 4) continue;
    node.bits.resize(mask_words_, 0);
    for (const TokenId token : node.tokens) node.bits[token / 64] |= uint64_t{1} << (token % 64);
    node.tokens = {};
    bytes_ += mask_words_ * 8;
  }
}

void TokenShapes::add(std::span<const TokenId> tokens, Found& found) const {
  if (found.bits.empty() && found.tokens.size() + tokens.size() > mask_words_) {
    found.bits.resize(mask_words_, 0);
    add(std::exchange(found.tokens, {}), found);
  }
  if (found.bits.empty()) return void(found.tokens.insert(found.tokens.end(), tokens.begin(), tokens.end()));
  for (const TokenId token : tokens) found.bits[token / 64] |= uint64_t{1} << (token % 64);
}

void TokenShapes::follow(uint32_t number, const Dfa* dfa, const StringState& state, Found& found,
                         std::vector<uint32_t>& ends) const {
  const Node& node = nodes_[number];
  add(node.tokens, found);
  if (!node.bits.empty()) {
    if (found.bits.empty()) {
      found.bits.resize(mask_words_, 0);
      add(std::exchange(found.tokens, {}), found);
    }
    for (size_t i = 0; i < mask_words_; ++i) found.bits[i] |= node.bits[i];
  }
  for (const auto& [bytes, tokens] : node.partial) {
    StringState within = state;
    const bool fits = std::ranges::all_of(
        bytes, [&](char byte) { return step_string(dfa, within, static_cast<uint8_t>(byte)) == ByteStep::kInside; });
    if (fits) add(tokens, found);
  }
  if (!node.ends.empty()) {
    StringState closed = state;
    if (step_string(dfa, closed, '"') == ByteStep::kClosed) ends.push_back(number);
  }
  for (const Edge& edge : node.edges) {
    StringState next = state;
    if (step_character(dfa, next, edge.sample, edge.escaped) == ByteStep::kInside)
      follow(edge.child, dfa, next, found, ends);
  }
}

TokenShapes::Found TokenShapes::find(const Dfa* dfa, const StringState& state) const {
  Found found;
  std::vector<uint32_t> ends;
  follow(0, dfa, state, found, ends);
  if (!ends.empty()) found.behind = behind(ends);
  return found;
}

TokenBranches TokenShapes::behind(const std::vector<uint32_t>& numbers) const {
  const std::lock_guard lock(mutex_);
  if (behind_.size() > kMaxKept) behind_.clear();
  if (const auto found = behind_.find(numbers); found != behind_.end()) return found->second;
  std::vector<TokenBranches> parts;
  std::vector<TokenTrie::Branch> branches;
  for (const uint32_t number : numbers) {
    std::vector<TokenTrie::Branch> own;
    for (const uint32_t end : nodes_[number].ends) own.push_back({&trie_, end});
    if (numbers.size() > 1 && own.size() > kFewEnds) {  // what the ends have in common is found once
      auto& part = behind_[{number}];
      if (part.empty()) part = TokenBranches(own, trie_, keep_);
      parts.push_back(part);
      own.assign(part.begin(), part.end());
    }
    branches.insert(branches.end(), own.begin(), own.end());
  }
  return behind_[numbers] = TokenBranches(branches, trie_, keep_);
}

}  // namespace tandem::model::constraint
