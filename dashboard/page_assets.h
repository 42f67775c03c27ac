// Style and script of every page: small enough to live in it.
#pragma once

#include <string_view>

namespace tandem::dashboard {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace tandem::dashboard
