#include "model/tokenizer.h"

#include "model/utf8.h"

namespace tandem::model {

Status Tokenizer::encode_normalized(std::string_view text, RegexScratch& scratch, std::vector<TokenId>& out) const {
  std::vector<std::string_view> pieces;
  std::string with_space;
  if (pre_tokenizer_.adds_prefix_space() && !text.empty() && text[0] != ' ') {
    with_space.assign(" ").append(text);
    text = with_space;
  }
  pieces.reserve(text.size() / 4 + 1);
  TRY(pre_tokenizer_.cut(text, scratch, pieces));
  for (const std::string_view piece : pieces) bpe_.encode(piece, out);
  return {};
}

Status Tokenizer::encode_part(std::string_view text, RegexScratch& scratch, std::vector<TokenId>& out) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = normalizer_.apply(text);
    text = normalized;
  }
  if (normalized_tokens_.empty()) return encode_normalized(text, scratch, out);
  std::vector<AddedTokenFinder::Part> parts;
  normalized_tokens_.split(text, parts);
  for (const auto& part : parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
    } else {
      TRY(encode_normalized(part.text, scratch, out));
    }
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, AddSpecial add_special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 4);
  if (add_special == AddSpecial::kYes) ids = before_;
  RegexScratch scratch;
  std::vector<AddedTokenFinder::Part> parts;
  raw_tokens_.split(text, parts);
  for (const auto& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      TRY(encode_part(part.text, scratch, ids));
    }
  }
  if (add_special == AddSpecial::kYes) ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  return id >= 0 && id < size() ? std::string_view(bytes_[id]) : std::string_view();
}

std::string_view Tokenizer::name_of(TokenId id) const {
  return id >= 0 && id < size() ? std::string_view(names_[id]) : std::string_view();
}

bool Tokenizer::is_special(TokenId id) const { return id >= 0 && id < size() && special_[id]; }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  if (byte_tokens_.empty() && !strip_leading_space_) {
    std::string bytes;
    for (const TokenId id : ids) bytes += bytes_of(id);
    return replace_invalid_utf8(bytes);
  }
  StreamDecoder stream(*this);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

// A row of byte tokens is its text where all of it is UTF-8, else one U+FFFD for each byte.
std::string StreamDecoder::take_byte_row() {
  std::string row = std::exchange(pending_, {});
  if (is_valid_utf8(row)) return row;
  std::string out;
  for (size_t i = 0; i < row.size(); ++i) out += "\xef\xbf\xbd";
  return out;
}

std::string StreamDecoder::without_leading_space(std::string text) {
  if (begun_ || text.empty()) return text;
  begun_ = true;
  if (tokenizer_->strip_leading_space_ && text[0] == ' ') text.erase(0, 1);
  return text;
}

std::string StreamDecoder::push(TokenId id) {
  const std::string_view bytes = tokenizer_->bytes_of(id);
  if (!tokenizer_->byte_tokens_.empty()) {
    if (id >= 0 && id < tokenizer_->size() && tokenizer_->byte_tokens_[id]) {
      pending_ += bytes;
      return {};
    }
    std::string row = take_byte_row();
    return without_leading_space(row.append(bytes));
  }
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = next_character(rest);
    if (step.kind == Utf8Step::kIncomplete) break;
    if (step.kind == Utf8Step::kCharacter) {
      out += rest.substr(0, step.length);
    } else {
      out += "\xef\xbf\xbd";
    }
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return without_leading_space(std::move(out));
}

std::string StreamDecoder::finish() {
  if (!tokenizer_->byte_tokens_.empty()) return without_leading_space(take_byte_row());
  return without_leading_space(replace_invalid_utf8(std::exchange(pending_, {})));
}

}  // namespace tandem::model
