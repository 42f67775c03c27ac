// One value by a format specifier of Python, as format() and the % of texts have it.
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, has_sign = false;
  bool zeros = false;  // a 0 before the width, and no alignment: zeros between a number's sign and its digits
  int width = 0, precision = -1;
  int least_digits = -1;  // of a whole number, by the % of texts
};

// Moves `at` behind the digits. TemplateError where there are too many.
int read_count(std::string_view text, size_t& at);

std::string formatted_float(const Spec& spec, double number);
std::string formatted_int(const Spec& spec, const Value& value);
std::string formatted_text(const Spec& spec, const std::string& text);

// format(value, text).
std::string formatted(const Value& value, std::string_view text);

// The character of a number, or a text of one character.
std::string character_of(const Value& value);

// ascii(value): its repr() with escapes for what is beyond ASCII.
std::string ascii_repr(const Value& value);

}  // namespace tandem::model::jinja
