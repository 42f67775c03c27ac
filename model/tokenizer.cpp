#include "model/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace tandem::model {

namespace {

// Places of a piece by those of the text that the model sees of it, asked for in rising order.
class SeenPlaces {
 public:
  // `metaspace` is null where the model sees the piece itself.
  SeenPlaces(std::string_view piece, const Metaspace* metaspace, bool at_start) : piece_(piece), metaspace_(metaspace) {
    if (metaspace && !piece.empty() && metaspace->prepends(piece, at_start)) seen_ = metaspace->mark.size();
  }

  size_t before(size_t seen) {
    if (!metaspace_) return std::min(seen, piece_.size());
    while (seen_ < seen && at_ < piece_.size()) seen_ += piece_[at_++] == ' ' ? metaspace_->mark.size() : 1;
    return at_;
  }

 private:
  std::string_view piece_;
  const Metaspace* metaspace_;
  size_t seen_ = 0;
  size_t at_ = 0;
};

}  // namespace

Status Tokenizer::encode_normalized(std::string_view text, bool at_start, bool with_ends, RegexScratch& scratch,
                                    Encoded& out) const {
  std::vector<std::string_view> pieces;
  std::string with_space;
  const bool adds_space = pre_tokenizer_.adds_prefix_space() && !text.empty() && text[0] != ' ';
  if (adds_space) {
    with_space.assign(" ").append(text);
    text = with_space;
  }
  pieces.reserve(text.size() / 4 + 1);
  TRY(pre_tokenizer_.cut(text, scratch, pieces));
  const auto& metaspace = pre_tokenizer_.metaspace();
  const auto* bpe = std::get_if<Bpe>(&model_);
  const auto* unigram = std::get_if<Unigram>(&model_);
  const auto* word_piece = std::get_if<WordPiece>(&model_);
  std::vector<size_t> lengths;
  for (const std::string_view piece : pieces) {
    const auto begin = static_cast<size_t>(piece.data() - text.data());
    const size_t first = out.ids.size();
    const bool opens = at_start && begin == 0;
    const std::string written = metaspace ? metaspace->written(piece, opens) : "";
    const std::string_view seen = metaspace ? written : piece;
    lengths.clear();
    if (unigram) unigram->encode(seen, out.ids, with_ends ? &lengths : nullptr);
    if (bpe) bpe->encode(seen, out.ids);
    if (word_piece) word_piece->encode(seen, out.ids);
    if (!with_ends) continue;
    const std::span ids(out.ids.begin() + static_cast<ptrdiff_t>(first), out.ids.end());
    if (bpe) bpe->measure(seen, ids, lengths);
    if (word_piece) {
      for (const TokenId id : ids) lengths.push_back(word_piece->tokens()[id].size());
    }
    SeenPlaces places(piece, metaspace ? &*metaspace : nullptr, opens);
    size_t length = 0;
    for (size_t i = first; i < out.ids.size(); ++i) {
      length += lengths[i - first];
      const size_t end = begin + (i + 1 == out.ids.size() ? piece.size() : places.before(length));
      out.ends.push_back(adds_space && end > 0 ? end - 1 : end);
    }
  }
  return {};
}

Status Tokenizer::encode_part(std::string_view text, size_t begin, bool with_ends, RegexScratch& scratch,
                              Encoded& out) const {
  const size_t first = out.ends.size();
  std::string normalized;
  std::vector<ChangedPlaces> changes;
  if (!normalizer_.empty()) {
    normalized = TRY(with_ends ? normalizer_.apply(text, changes) : normalizer_.apply(text));
    text = normalized;
  }
  if (normalized_tokens_.empty()) {
    TRY(encode_normalized(text, begin == 0, with_ends, scratch, out));
  } else {
    std::vector<AddedTokenFinder::Part> parts;
    normalized_tokens_.split(text, parts);
    for (const auto& part : parts) {
      const auto offset = static_cast<size_t>(part.text.data() - text.data());
      const size_t first_of_part = out.ends.size();
      if (part.id >= 0) {
        out.ids.push_back(part.id);
        if (with_ends) out.ends.push_back(part.text.size());
      } else {
        TRY(encode_normalized(part.text, begin + offset == 0, with_ends, scratch, out));
      }
      for (size_t i = first_of_part; i < out.ends.size(); ++i) out.ends[i] += offset;
    }
  }
  for (size_t i = first; i < out.ends.size(); ++i) {
    for (auto change = changes.rbegin(); change != changes.rend(); ++change) out.ends[i] = change->source(out.ends[i]);
    out.ends[i] += begin;
  }
  return {};
}

// A part with places in it that are no special tokens. Where the model itself would make one of them, it is cut in two
// behind its first character.
Status Tokenizer::encode_plain_part(std::string_view text, size_t begin, Places plain, RegexScratch& scratch,
                                    Encoded& out) const {
  if (!normalized_tokens_.has_special()) {
    Encoded whole;
    TRY(encode_part(text, begin, true, scratch, whole));
    if (std::none_of(whole.ids.begin(), whole.ids.end(), [&](TokenId id) { return is_special(id); })) {
      out.ids.insert(out.ids.end(), whole.ids.begin(), whole.ids.end());
      out.ends.insert(out.ends.end(), whole.ends.begin(), whole.ends.end());
      return {};
    }
  }
  size_t from = 0;
  const auto encode_to = [&](size_t end) -> Status {
    if (end <= from) return {};
    TRY(encode_part(text.substr(from, end - from), begin + from, true, scratch, out));
    from = end;
    return {};
  };
  for (const auto& [first, last] : plain) {
    if (first < begin || first >= begin + text.size()) continue;
    const size_t at = first - begin;
    TRY(encode_to(at + next_character(text.substr(at)).length));
  }
  return encode_to(text.size());
}

Result<Encoded> Tokenizer::encode_all(std::string_view text, bool with_ends, Places plain) const {
  Encoded encoded;
  encoded.ids.reserve(text.size() / 3 + 4);
  RegexScratch scratch;
  std::vector<AddedTokenFinder::Part> parts;
  raw_tokens_.split(text, parts, plain);
  for (const auto& part : parts) {
    const auto begin = static_cast<size_t>(part.text.data() - text.data());
    if (part.id < 0) {
      TRY(plain.empty() ? encode_part(part.text, begin, with_ends, scratch, encoded)
                        : encode_plain_part(part.text, begin, plain, scratch, encoded));
      continue;
    }
    encoded.ids.push_back(part.id);
    if (with_ends) encoded.ends.push_back(begin + part.text.size());
  }
  return encoded;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, AddSpecial add_special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  Encoded encoded = TRY(encode_all(text, false, {}));
  return add_special == AddSpecial::kYes ? with_special(encoded.ids) : std::move(encoded.ids);
}

std::vector<TokenId> Tokenizer::with_special(std::span<const TokenId> ids) const {
  std::vector<TokenId> all = before_;
  all.insert(all.end(), ids.begin(), ids.end());
  all.insert(all.end(), after_.begin(), after_.end());
  return all;
}

Result<Encoded> Tokenizer::encode_with_ends(std::string_view text, Places plain) const {
  if (!is_valid_utf8(text)) return fail(Status::invalid("the text is not UTF-8"));
  return encode_all(text, true, plain);
}

std::vector<std::string> Tokenizer::special_texts() const {
  std::vector<std::string> texts;
  for (size_t id = 0; id < names_.size(); ++id)
    if (special_[id] && !names_[id].empty()) texts.push_back(names_[id]);
  return texts;
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
  if (byte_tokens_.empty() && opening_.empty() && !strip_leading_space_) {
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
  if (!tokenizer_->opening_.empty()) {
    if (tokenizer_->name_of(id).empty()) return {};
    return std::exchange(begun_, true) ? tokenizer_->bytes_[id] : tokenizer_->opening_[id];
  }
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
