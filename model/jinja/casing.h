// Letters in upper, lower and title case, as Python's str has them: characters that become several, and a sigma that
// ends a word, included.
#pragma once

#include <string>
#include <string_view>

namespace tandem::model::jinja {

// str.islower and str.isupper: by what the letters are, whether there are others for them or not.
bool is_all_lower(std::string_view text);
bool is_all_upper(std::string_view text);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string fold_case(std::string_view text);
std::string swap_case(std::string_view text);
// str.title: a letter behind a letter is lower, any other title.
std::string to_title(std::string_view text);
// str.capitalize.
std::string capitalized(std::string_view text);
// jinja2's filter title: a letter is upper behind white space, a hyphen or an opening bracket, and lower elsewhere.
std::string titled_words(std::string_view text);

}  // namespace tandem::model::jinja
