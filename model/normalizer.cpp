#include "model/normalizer.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>

#include "base/utf8.h"
#include "model/byte_alphabet.h"
#include "model/unicode16.h"

namespace tandem::model {
namespace {

Result<std::string> text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return fail(Status::invalid(fmt::format("has no string {}", key)));
  return found->get<std::string>();
}

// `places`, where it is not null, gets all parts but the end.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        ChangedPlaces* places = nullptr) {
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t found = text.find(from, at);
    if (places) places->add(at, out.size());
    out.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return out;
    if (places) places->add(found, out.size());
    out.append(to);
    at = found + from.size();
  }
}

char32_t small_of(char32_t character) {
  if (character < kNewCapitals[0].first) return static_cast<char32_t>(u_tolower(static_cast<UChar32>(character)));
  for (const auto& [first, last, small] : kNewCapitals)
    if (character >= first && character <= last) return small + (character - first);
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(character)));
}

// Character by character, as Rust's char::to_lowercase: the full mapping, without looking at neighbours.
std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    if (step.character == 0x130) {  // the only character that becomes two
      out += "i\xcc\x87";
    } else {
      append_utf8(small_of(step.character), out);
    }
    at += step.length;
  }
  return out;
}

// Characters that `keep` does not want are left out.
template <typename Keep>
std::string filtered(std::string_view text, const Keep& keep) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    if (keep(step.character)) out.append(text.substr(at, step.length));
    at += step.length;
  }
  return out;
}

std::string with_plain_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    out.append(is_white_space(step.character) ? " " : text.substr(at, step.length));
    at += step.length;
  }
  return out;
}

std::string with_spaced_ideographs(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    const auto character = text.substr(at, step.length);
    if (BertCharacters::is_ideograph(step.character))
      out.append(" ").append(character).append(" ");
    else
      out.append(character);
    at += step.length;
  }
  return out;
}

std::string stripped(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    const Utf8Step step = next_character(text.substr(begin));
    if (!is_white_space(step.character)) break;
    begin += step.length;
  }
  size_t end = begin;
  for (size_t at = begin; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    at += step.length;
    if (!right || !is_white_space(step.character)) end = at;
  }
  return std::string(text.substr(begin, end - begin));
}

// What SentencePiece's rules for machine translation do first: controls go, odd spaces become plain.
std::string prepared_for_nmt(std::string_view text) {
  const auto in = [](char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    const char32_t c = step.character;
    const bool removed = in(c, 0x1, 0x8) || c == 0xb || in(c, 0xe, 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    const bool space = c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || in(c, 0x200b, 0x200f) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    if (!removed) out.append(space ? " " : text.substr(at, step.length));
    at += step.length;
  }
  return out;
}

std::string as_byte_characters(std::string_view text) {
  static const auto kCharacters = byte_characters();
  std::string out;
  for (const char byte : text) append_utf8(kCharacters[static_cast<uint8_t>(byte)], out);
  return out;
}

Result<std::string> replace_matches(std::string_view text, const Regex& pattern, std::string_view to,
                                    ChangedPlaces* places = nullptr) {
  RegexScratch scratch;
  std::string out;
  size_t at = 0;
  for (;;) {
    const Regex::Match match = TRY(pattern.find(text, at, scratch));
    if (places) places->add(at, out.size());
    if (!match.found) return out.append(text.substr(at));
    if (match.begin == match.end) {
      return fail(Status::invalid(fmt::format("normalizer: the pattern of Replace matches nothing at byte {}", at)));
    }
    out.append(text.substr(at, match.begin - at));
    if (places) places->add(match.begin, out.size());
    out.append(to);
    at = match.end;
  }
}

}  // namespace

// A normal form over the characters of Unicode 9.
class Normalizer::Form {
 public:
  static Result<std::shared_ptr<const Form>> create(std::string_view name) {
    UErrorCode error = U_ZERO_ERROR;
    const icu::Normalizer2* full = name == "NFC"    ? icu::Normalizer2::getNFCInstance(error)
                                   : name == "NFD"  ? icu::Normalizer2::getNFDInstance(error)
                                   : name == "NFKC" ? icu::Normalizer2::getNFKCInstance(error)
                                                    : icu::Normalizer2::getNFKDInstance(error);
    icu::UnicodeSet known(u"[:age=9.0:]", error);
    if (U_FAILURE(error)) return fail(Status::unfit(fmt::format("ICU has no {}: {}", name, u_errorName(error))));
    known.freeze();
    return std::shared_ptr<const Form>(new Form(*full, std::move(known)));
  }

  std::string apply(std::string text) const {
    UErrorCode error = U_ZERO_ERROR;
    const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
    if (filtered_.isNormalizedUTF8(piece, error)) return text;
    std::string out;
    icu::StringByteSink<std::string> sink(&out);
    filtered_.normalizeUTF8(0, piece, sink, nullptr, error);
    return out;
  }

 private:
  Form(const icu::Normalizer2& full, icu::UnicodeSet known) : known_(std::move(known)), filtered_(full, known_) {}

  icu::UnicodeSet known_;
  icu::FilteredNormalizer2 filtered_;  // refers to known_
};

Result<Normalizer> Normalizer::from_json(const Json& json) {
  Normalizer result;
  if (!json.is_null()) {
    Status status = result.add(json);
    if (!status.ok()) return fail(std::move(status).at("normalizer"));
  }
  return result;
}

Status Normalizer::add(const Json& json) {
  if (!json.is_object()) return Status::invalid("is not an object");
  const std::string type = TRY(text_of(json, "type"));
  if (type == "Sequence") {
    const auto found = json.find("normalizers");
    if (found == json.end() || !found->is_array()) return Status::invalid("Sequence has no normalizers");
    for (const Json& inner : *found) TRY(add(inner));
    return {};
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps_.emplace_back(TRY(Form::create(type)));
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{TRY(text_of(json, "prepend"))});
  } else if (type == "Replace") {
    return add_replace(json);
  } else if (type == "Strip") {
    const bool left = TRY(bool_at(json, "strip_left", true)), right = TRY(bool_at(json, "strip_right", true));
    const Strip strip{left, right};
    keeps_start_ &= !strip.left;
    steps_.emplace_back(strip);
  } else if (type == "StripAccents") {
    keeps_start_ = false;
    UErrorCode error = U_ZERO_ERROR;
    // The exceptions are what later versions of Unicode moved out of the marks, and into them.
    auto marks = std::make_shared<icu::UnicodeSet>(uR"([[[[:M:]&[:age=9.0:]]\u1CF2\u1CF3]-[\U000111C9]])", error);
    if (U_FAILURE(error)) return Status::unfit(fmt::format("ICU has no class of marks: {}", u_errorName(error)));
    marks->freeze();
    steps_.emplace_back(StripMarks{std::move(marks)});
  } else if (type == "Nmt") {
    keeps_start_ = false;
    steps_.emplace_back(Nmt{});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(BytesAsCharacters{});
  } else if (type == "Precompiled") {
    steps_.emplace_back(
        std::make_shared<const Precompiled>(TRY(Precompiled::create(TRY(text_of(json, "precompiled_charsmap"))))));
  } else if (type == "BertNormalizer") {
    return add_bert(json);
  } else {
    return Status::invalid(fmt::format("type {} is not supported", type));
  }
  return {};
}

Status Normalizer::add_replace(const Json& json) {
  const auto pattern = json.find("pattern");
  if (pattern == json.end() || !pattern->is_object() || pattern->size() != 1 ||
      !(pattern->contains("String") || pattern->contains("Regex"))) {
    return Status::invalid("Replace has no pattern of type String or Regex");
  }
  std::string to = TRY(text_of(json, "content"));
  if (pattern->contains("Regex")) {
    auto regex = TRY(Regex::compile(TRY(text_of(*pattern, "Regex"))));
    RegexScratch scratch;
    if (TRY(regex.find("", 0, scratch)).found) return Status::invalid("Replace of a pattern that matches nothing");
    keeps_start_ = false;
    steps_.emplace_back(ReplaceMatches{std::make_shared<const Regex>(std::move(regex)), std::move(to)});
    return {};
  }
  Replace replace{TRY(text_of(*pattern, "String")), std::move(to)};
  if (replace.from.empty()) return Status::invalid("Replace of an empty string");
  keeps_start_ &= !replace.to.empty() && next_character(replace.from).length == replace.from.size();
  steps_.emplace_back(std::move(replace));
  return {};
}

Status Normalizer::add_bert(const Json& json) {
  keeps_start_ = false;
  const auto characters = TRY(BertCharacters::create());
  const bool lowercase = TRY(bool_at(json, "lowercase", true));
  if (TRY(bool_at(json, "clean_text", true))) steps_.emplace_back(CleanText{characters});
  if (TRY(bool_at(json, "handle_chinese_chars", true))) steps_.emplace_back(SpaceIdeographs{});
  if (TRY(bool_at(json, "strip_accents", lowercase))) {
    steps_.emplace_back(TRY(Form::create("NFD")));
    steps_.emplace_back(StripAccents{characters});
  }
  if (lowercase) steps_.emplace_back(Lowercase{});
  return {};
}

Result<std::string> Normalizer::apply_step(const Step& step, std::string text) {
  if (std::holds_alternative<Lowercase>(step)) return lowercase(text);
  if (const auto* prepend = std::get_if<Prepend>(&step)) return text.empty() ? text : prepend->text + text;
  if (const auto* replace = std::get_if<Replace>(&step)) return replace_all(text, replace->from, replace->to);
  if (const auto* replace = std::get_if<ReplaceMatches>(&step)) {
    return replace_matches(text, *replace->pattern, replace->to);
  }
  if (const auto* strip = std::get_if<Strip>(&step)) return stripped(text, strip->left, strip->right);
  if (std::holds_alternative<Nmt>(step)) return prepared_for_nmt(text);
  if (std::holds_alternative<BytesAsCharacters>(step)) return as_byte_characters(text);
  if (const auto* table = std::get_if<std::shared_ptr<const Precompiled>>(&step)) return (*table)->apply(text);
  if (const auto* clean = std::get_if<CleanText>(&step)) {
    return with_plain_spaces(filtered(text, [&](char32_t c) { return !clean->characters->is_removed(c); }));
  }
  if (std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<uint8_t>(byte) < 0x80; })) return text;
  if (std::holds_alternative<SpaceIdeographs>(step)) return with_spaced_ideographs(text);
  if (const auto* strip = std::get_if<StripMarks>(&step)) {
    return filtered(text, [&](char32_t c) { return !strip->marks->contains(static_cast<UChar32>(c)); });
  }
  if (const auto* strip = std::get_if<StripAccents>(&step)) {
    return filtered(text, [&](char32_t c) { return !strip->characters->is_accent(c); });
  }
  return std::get<std::shared_ptr<const Form>>(step)->apply(std::move(text));
}

Result<ChangedPlaces> Normalizer::places_of(const Step& step, std::string_view before, std::string_view after) {
  ChangedPlaces places;
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    places.add(0, 0);
    places.add(0, prepend->text.size());
  } else if (const auto* replace = std::get_if<Replace>(&step)) {
    replace_all(before, replace->from, replace->to, &places);
  } else if (const auto* matches = std::get_if<ReplaceMatches>(&step)) {
    TRY(replace_matches(before, *matches->pattern, matches->to, &places));
  } else if (const auto* strip = std::get_if<Strip>(&step)) {
    places.add(before.size() - stripped(before, strip->left, false).size(), 0);
  } else {
    // What a character of ASCII becomes follows from itself and the others up to the next; CR and LF are one.
    size_t result = 0;
    for (size_t at = 0; at < before.size();) {
      size_t end = at + (before.substr(at).starts_with("\r\n") ? 2 : 1);
      while (end < before.size() && (static_cast<uint8_t>(before[end]) & 0x80)) ++end;
      places.add(at, result);
      result += TRY(apply_step(step, std::string(before.substr(at, end - at)))).size();
      at = end;
    }
  }
  places.add(before.size(), after.size());
  return places;
}

Result<std::string> Normalizer::apply(std::string_view text, std::vector<ChangedPlaces>& places) const {
  std::string result(text);
  for (const Step& step : steps_) {
    std::string next = TRY(apply_step(step, result));
    if (next != result) places.push_back(TRY(places_of(step, result, next)));
    result = std::move(next);
  }
  return result;
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) result = TRY(apply_step(step, std::move(result)));
  return result;
}

}  // namespace tandem::model
