#include "model/word_piece.h"

#include <algorithm>

namespace tandem::model {
namespace {

bool starts_character(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }

}  // namespace

WordPiece::WordPiece(std::vector<std::string> names, Options options) : options_(std::move(options)) {
  for (size_t id = 0; id < names.size(); ++id) {
    std::string& name = names[id];
    if (options_.whole_words) {
      tokens_.push_back(name);
      if (!name.empty()) beginnings_.emplace(std::move(name), static_cast<TokenId>(id));
      continue;
    }
    tokens_.push_back(name.starts_with(options_.prefix) ? name.substr(options_.prefix.size()) : name);
    if (name.empty()) continue;
    longest_ = std::max(longest_, name.size());
    if (name.starts_with(options_.prefix)) continuations_.emplace(tokens_.back(), static_cast<TokenId>(id));
    beginnings_.emplace(std::move(name), static_cast<TokenId>(id));
  }
}

void WordPiece::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (options_.whole_words) {
    const auto found = beginnings_.find(piece);
    return out.push_back(found == beginnings_.end() ? options_.unknown : found->second);
  }
  const size_t first = out.size();
  const auto characters = static_cast<size_t>(std::count_if(piece.begin(), piece.end(), starts_character));
  if (characters > options_.max_characters) return out.push_back(options_.unknown);
  for (size_t at = 0; at < piece.size();) {
    const Table& table = at == 0 ? beginnings_ : continuations_;
    size_t end = std::min(piece.size(), at + longest_);
    auto found = table.end();
    for (; end > at; --end) {
      if (end < piece.size() && !starts_character(piece[end])) continue;
      found = table.find(piece.substr(at, end - at));
      if (found != table.end()) break;
    }
    if (found == table.end()) {
      out.resize(first);
      return out.push_back(options_.unknown);
    }
    out.push_back(found->second);
    at = end;
  }
}

}  // namespace tandem::model
