#include "model/jinja/casing.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <memory>
#include <vector>

#include "base/utf8.h"
#include "model/jinja/value.h"

namespace tandem::model::jinja {

namespace {

using Change = int32_t (*)(const UCaseMap*, char*, int32_t, const char*, int32_t, UErrorCode*);

// By the rules of no language. A text whose first letter is changed is taken from its first character on, whatever that
// is: ICU would look for a letter behind a mark.
constexpr uint32_t kCaseOptions = U_FOLD_CASE_DEFAULT | U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT;

std::string changed(std::string_view text, Change change) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, void (*)(UCaseMap*)> map(ucasemap_open("", kCaseOptions, &status), &ucasemap_close);
  if (U_FAILURE(status)) throw TemplateError("letters cannot be changed: ICU has no data");
  std::string out(text.size() * 3 + 16, '\0');
  for (;;) {
    status = U_ZERO_ERROR;
    const int32_t length = change(map.get(), out.data(), static_cast<int32_t>(out.size()), text.data(),
                                  static_cast<int32_t>(text.size()), &status);
    if (status == U_BUFFER_OVERFLOW_ERROR) {
      out.resize(static_cast<size_t>(length));
      continue;
    }
    if (U_FAILURE(status)) throw TemplateError("letters cannot be changed");
    out.resize(static_cast<size_t>(length));
    return out;
  }
}

int32_t title_of(const UCaseMap* map, char* out, int32_t room, const char* text, int32_t length, UErrorCode* status) {
  return ucasemap_utf8ToTitle(const_cast<UCaseMap*>(map), out, room, text, length, status);
}

UChar32 code_of(std::string_view character) { return static_cast<UChar32>(next_character(character).character); }

// A sigma at the end of a word has a letter of its own; of all others it does not matter what they stand beside.
std::string lower_at(const std::vector<std::string_view>& all, size_t i) {
  constexpr UChar32 kSigma = 0x3a3;
  if (code_of(all[i]) != kSigma) return to_lower(all[i]);
  const auto ignored = [&](size_t k) { return u_hasBinaryProperty(code_of(all[k]), UCHAR_CASE_IGNORABLE) != 0; };
  const auto cased = [&](size_t k) { return u_hasBinaryProperty(code_of(all[k]), UCHAR_CASED) != 0; };
  size_t before = i, behind = i + 1;
  while (before > 0 && ignored(before - 1)) --before;
  while (behind < all.size() && ignored(behind)) ++behind;
  const bool ends = before > 0 && cased(before - 1) && !(behind < all.size() && cased(behind));
  return ends ? "ς" : "σ";
}

}  // namespace

std::string to_upper(std::string_view text) { return changed(text, &ucasemap_utf8ToUpper); }
std::string to_lower(std::string_view text) { return changed(text, &ucasemap_utf8ToLower); }
std::string fold_case(std::string_view text) { return changed(text, &ucasemap_utf8FoldCase); }

bool is_all_lower(std::string_view text) {
  bool any = false;
  for (const auto character : characters_of(text)) {
    const UChar32 c = code_of(character);
    if (u_hasBinaryProperty(c, UCHAR_UPPERCASE) != 0 || u_istitle(c) != 0) return false;
    any = any || u_hasBinaryProperty(c, UCHAR_LOWERCASE) != 0;
  }
  return any;
}

bool is_all_upper(std::string_view text) {
  bool any = false;
  for (const auto character : characters_of(text)) {
    const UChar32 c = code_of(character);
    if (u_hasBinaryProperty(c, UCHAR_LOWERCASE) != 0 || u_istitle(c) != 0) return false;
    any = any || u_hasBinaryProperty(c, UCHAR_UPPERCASE) != 0;
  }
  return any;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool within = false;
  const auto all = characters_of(text);
  for (size_t i = 0; i < all.size(); ++i) {
    out += within ? lower_at(all, i) : changed(all[i], &title_of);
    within = u_hasBinaryProperty(code_of(all[i]), UCHAR_CASED) != 0;
  }
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  const auto all = characters_of(text);
  for (size_t i = 0; i < all.size(); ++i) out += i == 0 ? changed(all[i], &title_of) : lower_at(all, i);
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const auto all = characters_of(text);
  for (size_t i = 0; i < all.size(); ++i) {
    if (u_hasBinaryProperty(code_of(all[i]), UCHAR_UPPERCASE) != 0)
      out += lower_at(all, i);
    else
      out += u_hasBinaryProperty(code_of(all[i]), UCHAR_LOWERCASE) != 0 ? to_upper(all[i]) : std::string(all[i]);
  }
  return out;
}

std::string titled_words(std::string_view text) {
  std::string out;
  const auto all = characters_of(text);
  for (size_t begin = 0; begin < all.size();) {
    const auto separates = [&](size_t i) {
      return is_python_space(static_cast<char32_t>(code_of(all[i]))) ||
             std::string_view("-({[<").find(all[i]) != std::string_view::npos;
    };
    size_t end = begin;
    while (end < all.size() && separates(end) == separates(begin)) ++end;
    const char* const last = all[end - 1].data() + all[end - 1].size();
    if (separates(begin))
      out.append(all[begin].data(), last);
    else
      out += to_upper(all[begin]) + to_lower({all[begin].data() + all[begin].size(),
                                              static_cast<size_t>(last - all[begin].data()) - all[begin].size()});
    begin = end;
  }
  return out;
}

}  // namespace tandem::model::jinja
