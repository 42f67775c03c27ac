#include "model/bert_characters.h"

#include <fmt/format.h>

namespace tandem::model {

Result<std::shared_ptr<const BertCharacters>> BertCharacters::create() {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet removed(uR"([[\u0000\uFFFD[:Cc:][:Cf:][:Co:]]&[:age=8.0:]-[\t\n\r]])", error);
  // The exceptions are what later versions of Unicode moved into a class or out of it.
  icu::UnicodeSet accents(uR"([[[:Mn:]&[:age=8.0:]-[\u1885\u1886\uA9BD\U000111C9]]\u1734])", error);
  icu::UnicodeSet punctuation(uR"([[[:P:]&[:age=8.0:]]\u166D\U000111C9$+<=>\^`|~])", error);
  if (U_FAILURE(error)) return fail(Status::unfit(fmt::format("ICU has no classes: {}", u_errorName(error))));
  return std::shared_ptr<const BertCharacters>(
      new BertCharacters(std::move(removed), std::move(accents), std::move(punctuation)));
}

BertCharacters::BertCharacters(icu::UnicodeSet removed, icu::UnicodeSet accents, icu::UnicodeSet punctuation)
    : removed_(std::move(removed)), accents_(std::move(accents)), punctuation_(std::move(punctuation)) {
  for (icu::UnicodeSet* set : {&removed_, &accents_, &punctuation_}) set->freeze();
}

bool BertCharacters::is_ideograph(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                                       {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                                       {0x2f800, 0x2fa1f}};
  for (const auto& [first, last] : kRanges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

}  // namespace tandem::model
