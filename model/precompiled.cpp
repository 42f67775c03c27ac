#include "model/precompiled.h"

#include <fmt/format.h>
#include <unicode/brkiter.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

#include "base/utf8.h"
#include "model/unicode16.h"

namespace tandem::model {
namespace {

constexpr size_t kLargestTable = 64 << 20;  // bytes of base64
constexpr size_t kShortCluster = 6;         // bytes; a longer cluster is looked up by characters only

Result<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto wrong = [](size_t at) { return fail(Status::invalid(fmt::format("is not base64 at character {}", at))); };
  if (text.size() % 4 != 0) return wrong(text.size());
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const size_t digits = text.size() - padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (size_t at = 0; at < digits; ++at) {
    const size_t digit = kDigits.find(text[at]);
    if (digit == std::string_view::npos) return wrong(at);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  if (count > 0 && (bits & ((1U << count) - 1)) != 0) return wrong(digits - 1);
  return out;
}

// The fields of a unit of the double array (Darts).
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
uint64_t offset_of(uint32_t unit) { return static_cast<uint64_t>(unit >> 10) << ((unit & (1U << 9)) >> 6); }

bool is_new_mark(char32_t c) {
  return std::ranges::any_of(kNewMarks, [&](const NewMarks& range) { return c >= range.first && c <= range.last; });
}
int32_t break_class(char32_t c) { return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK); }
bool stands_alone(char32_t c) {
  const int32_t kind = break_class(c);
  return kind == U_GCB_CONTROL || kind == U_GCB_CR || kind == U_GCB_LF;
}
bool is_mark(char32_t c) {
  const int32_t kind = break_class(c);
  return kind == U_GCB_EXTEND || kind == U_GCB_SPACING_MARK || kind == U_GCB_ZWJ || is_new_mark(c);
}

// Whether a cluster ends between two characters, where ICU says `ends`: the difference that newer characters make.
bool cluster_ends(char32_t before, char32_t after, bool ends) {
  if (!ends) return before == kFormerPrefix && !is_mark(after);
  return !(is_new_mark(after) && !stands_alone(before)) && !(before == kNewPrefix && !stands_alone(after));
}

struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

}  // namespace

Result<Precompiled> Precompiled::create(std::string_view base64) {
  if (base64.size() > kLargestTable) {
    return fail(Status::invalid(fmt::format("precompiled_charsmap is longer than {} bytes", kLargestTable)));
  }
  auto decoded = decode_base64(base64);
  if (!decoded) return fail(std::move(decoded).error().at("precompiled_charsmap"));
  const std::string& bytes = *decoded;
  uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (size < sizeof size || size % 4 != 0 || size > bytes.size() - sizeof size) {
    return fail(Status::invalid(
        fmt::format("precompiled_charsmap: a tree of {} bytes does not fit into {}", size, bytes.size())));
  }
  Precompiled result;
  result.units_.resize(size / 4);
  std::memcpy(result.units_.data(), bytes.data() + sizeof size, size);
  result.texts_ = bytes.substr(sizeof size + size);
  if (!is_valid_utf8(result.texts_)) {
    return fail(Status::invalid("precompiled_charsmap: the texts are not UTF-8"));
  }
  return result;
}

// Units point anywhere in a damaged table: a place outside of it ends the search as a wrong label does.
std::optional<std::string_view> Precompiled::find(std::string_view text) const {
  uint64_t node = offset_of(units_[0]);
  for (const char character : text) {
    const auto byte = static_cast<uint8_t>(character);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t begin = value_of(units_[node]);
    if (begin > texts_.size()) break;
    const auto found = std::string_view(texts_).substr(begin);
    const auto replacement = found.substr(0, std::min(found.find('\0'), found.size()));
    if (!is_valid_utf8(replacement)) break;  // begins within a character
    return replacement;
  }
  return std::nullopt;
}

void Precompiled::apply_cluster(std::string_view cluster, std::string& out) const {
  if (cluster.size() < kShortCluster) {
    if (const auto found = find(cluster)) {
      out += *found;
      return;
    }
  }
  while (!cluster.empty()) {
    const auto character = cluster.substr(0, next_character(cluster).length);
    out += find(character).value_or(character);
    cluster.remove_prefix(character.size());
  }
}

Result<std::string> Precompiled::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  const auto is_ascii = [](char byte) { return static_cast<uint8_t>(byte) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) {  // of these only CR and LF are one cluster
    for (size_t at = 0; at < text.size();) {
      const size_t length = text.substr(at).starts_with("\r\n") ? 2 : 1;
      apply_cluster(text.substr(at, length), out);
      at += length;
    }
    return out;
  }
  if (text.size() > INT_MAX) return fail(Status::exhausted("a text of more than 2 GiB cannot be normalised"));
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> clusters(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  const std::unique_ptr<UText, CloseText> view(
      utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error));
  if (U_SUCCESS(error)) clusters->setText(view.get(), error);
  if (U_FAILURE(error)) return fail(Status::unfit(fmt::format("ICU has no grapheme clusters: {}", u_errorName(error))));
  auto next_end = static_cast<size_t>(clusters->next());
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step before = next_character(text.substr(at));
    at += before.length;
    bool ends = true;
    if (at < text.size()) {
      ends = cluster_ends(before.character, next_character(text.substr(at)).character, at == next_end);
      if (at == next_end) next_end = static_cast<size_t>(clusters->next());
    }
    if (!ends) continue;
    apply_cluster(text.substr(begin, at - begin), out);
    begin = at;
  }
  return out;
}

}  // namespace tandem::model
