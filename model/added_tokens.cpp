#include "model/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "base/utf8.h"

namespace tandem::model {
namespace {

// \w of a Unicode regular expression.
bool is_word(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

// Where the last character of `text` starts; `text` is not empty.
size_t last_start(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(next_character(text.substr(last_start(text))).character);
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(next_character(text).character); }

size_t without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const size_t last = last_start(text);
    if (!is_white_space(next_character(text.substr(last)).character)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = next_character(text.substr(at));
    if (!is_white_space(step.character)) break;
    at += step.length;
  }
  return at;
}

uint64_t edge(int node, char byte) { return (uint64_t{static_cast<uint32_t>(node)} << 8) | static_cast<uint8_t>(byte); }

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  int node = 0;
  for (const char byte : pattern) {
    const auto [next, fresh] = edges_.try_emplace(edge(node, byte), static_cast<int>(ends_.size()));
    if (fresh) ends_.push_back(-1);
    node = next->second;
  }
  if (ends_[node] >= 0) return;  // the same text stands for the token that came first
  ends_[node] = static_cast<int>(tokens_.size());
  starts_[static_cast<uint8_t>(pattern[0])] = true;
  tokens_.push_back(token);
  lengths_.push_back(pattern.size());
}

int AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  int node = 0;
  int longest = -1;
  for (; at < text.size(); ++at) {
    const auto next = edges_.find(edge(node, text[at]));
    if (next == edges_.end()) break;
    node = next->second;
    if (ends_[node] >= 0) longest = ends_[node];
  }
  return longest;
}

bool AddedTokenFinder::has_special() const {
  return std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& token) { return token.special; });
}

void AddedTokenFinder::split(std::string_view text, std::vector<Part>& out, Places plain) const {
  const auto overlaps = [&](size_t begin, size_t end) {
    return std::any_of(plain.begin(), plain.end(),
                       [&](const auto& place) { return place.first < end && begin < place.second; });
  };
  size_t covered = 0;
  size_t at = 0;
  while (at < text.size() && !tokens_.empty()) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const int index = longest_at(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + lengths_[index];
    const AddedToken& token = tokens_[index];
    if (token.special && !plain.empty() && overlaps(begin, end)) {
      ++at;
      continue;
    }
    at = end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(without_trailing_space(text.substr(0, begin)), covered);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (end <= begin) continue;  // of white space that the token before took in: HF drops what is empty
    if (covered < begin) out.push_back({text.substr(covered, begin - covered), -1});
    out.push_back({text.substr(begin, end - begin), token.id});
    covered = end;
  }
  if (covered < text.size()) out.push_back({text.substr(covered), -1});
}

}  // namespace tandem::model
