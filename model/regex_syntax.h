// Patterns in Oniguruma's syntax for Ruby, which tokenizer.json has, as patterns of PCRE2 that match the same.
//
// Each construct is translated or refused by name; nothing is passed on because both happen to accept it. So are what
// only looks the same: \v, \b, {n}? and {n,m}+, options in the middle of alternatives, \w within classes, scripts.
//
// Pure; thread safety: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::model {

// For PCRE2 with UTF, UCP and MULTILINE. kInvalid names what is wrong or not supported.
Result<std::string> pcre2_of_oniguruma(std::string_view pattern);

}  // namespace tandem::model
