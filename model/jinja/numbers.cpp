// The filters round, int and float, as jinja2 and Python have them.
#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {

namespace {

// Python reads the decimal digits of all scripts.
std::string with_ascii_digits(std::string_view text) {
  std::string out;
  for (const auto character : characters_of(text)) {
    const auto c = static_cast<UChar32>(next_character(character).character);
    if (c > 0x7f && u_charType(c) == U_DECIMAL_DIGIT_NUMBER)
      out += static_cast<char>('0' + u_charDigitValue(c));
    else
      out += character;
  }
  return out;
}

bool decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Underscores stand between two digits; nothing where one does not.
std::optional<std::string> without_underscores(std::string_view text, bool (*of_number)(char) = decimal_digit) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && of_number(text[i - 1]) && of_number(text[i + 1]);
    if (text[i] != '_') out += text[i];
    if (text[i] == '_' && !between) return std::nullopt;
  }
  return out;
}

// A whole number of base 10, as long as it may be.
std::optional<Value> whole(std::string_view text) {
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative || text.starts_with('+') ? 1 : 0);
  const auto plain = without_underscores(text);
  if (!plain || plain->empty() || !std::ranges::all_of(*plain, decimal_digit)) return std::nullopt;
  if (plain->size() > kMostDigits) return std::nullopt;
  return whole_of_digits(*plain, 10, negative);
}

bool letter_or_digit(char c) { return decimal_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Python's int(text, base); nothing where it raises.
std::optional<Value> whole_of_base(std::string text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  for (const auto& [mark, of_mark] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != mark || (base != of_mark && base != 0)) continue;
    base = of_mark;
    text.erase(0, text[2] == '_' ? 3 : 2);
  }
  const auto plain = without_underscores(text, letter_or_digit);
  if (!plain || plain->empty()) return std::nullopt;
  if (base == 0) {
    if (plain->front() == '0' && plain->find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  if (base == 10) return whole((negative ? "-" : "") + *plain);
  return whole_of_digits(*plain, static_cast<int>(base), negative);
}

// A number as Python reads one; nothing where it is none. The whole of `text`, stripped.
std::optional<double> number_in(const Value& value) {
  if (!value.is_string()) return std::nullopt;
  const std::string text = with_ascii_digits(strip(value.text(), nullptr, true, true));
  if (text.empty() || text.find_first_of("xX(") != std::string::npos) return std::nullopt;
  const auto plain = without_underscores(text);
  if (!plain) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(plain->c_str(), &end);
  return *end == 0 ? std::optional(number) : std::nullopt;
}

// To a multiple of a power of ten; halves to even.
Value round_whole(const Value& value, int64_t zeros) {
  if (zeros > static_cast<int64_t>(value.repr().size()) + 1) return 0;
  const Value unit = binary("**", Value(10), Value(zeros)), rest = binary("%", value, unit);
  const Value down = binary("-", value, rest), twice = binary("*", rest, Value(2));
  const bool odd = binary("%", binary("//", down, unit), Value(2)).truth();
  return unit.less(twice) || (unit.equals(twice) && odd) ? binary("+", down, unit) : down;
}

}  // namespace

Value round_number(const Value& value, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const std::string how = p.text(1, "common");
  const int64_t precision = p[0] ? p[0]->integer() : 0;
  const double factor = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return std::ceil(value.number() * factor) / factor;
  if (how == "floor") return std::floor(value.number() * factor) / factor;
  if (precision < 0) {  // halves to even
    if (!value.is_float()) return round_whole(value, -precision);
    constexpr int64_t kMost = 18;
    if (-precision > kMost) return std::copysign(0.0, value.number());
    const double power = std::pow(10.0, static_cast<double>(-precision));
    return std::copysign(value.number() - std::remainder(value.number(), power), value.number());
  }
  if (value.is_digits()) return value;
  if (!value.is_float()) return value.integer();
  if (precision == 0) return std::nearbyint(value.number());
  return std::strtod(fmt::format("{:.{}f}", value.number(), std::min<int64_t>(precision, 340)).c_str(), nullptr);
}

Value to_int(const Value& value, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  if (value.is_string()) {
    const std::string text = with_ascii_digits(strip(value.text(), nullptr, true, true));
    const int64_t base = p[1] ? p[1]->integer() : 10;
    if (const auto number = base == 10 ? whole(text) : whole_of_base(text, base)) return *number;
  }
  if (value.is_undefined()) throw TemplateError(value.why());
  if (value.is_digits()) return value;
  if (value.is_number() && !value.is_float()) return value.integer();
  const auto number = value.is_float() ? std::optional(value.number()) : number_in(value);
  if (!number || (!value.is_float() && !std::isfinite(*number))) return p[0] ? *p[0] : Value(0);
  if (std::isinf(*number)) throw TemplateError("cannot convert float infinity to integer");
  if (std::isnan(*number)) return p[0] ? *p[0] : Value(0);
  if (!(std::fabs(*number) < 9.2e18)) return Value::whole_number(fmt::format("{:.0f}", std::trunc(*number)));
  return static_cast<int64_t>(*number);
}

Value to_float(const Value& value, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  if (value.is_undefined()) throw TemplateError(value.why());
  if (value.is_number()) return value.number();
  if (const auto number = number_in(value)) return *number;
  return p[0] ? *p[0] : Value(0.0);
}

}  // namespace tandem::model::jinja
