#include "model/jinja/whole_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdlib>

namespace tandem::model::jinja {

namespace {

using Wide = boost::multiprecision::cpp_int;

constexpr size_t kMostBits = 14'286;  // of a number of kMostDigits digits

[[noreturn]] void too_long() { throw TemplateError(fmt::format("a whole number of more than {} digits", kMostDigits)); }

Wide wide_of(const Value& value) {
  if (value.is_digits()) return Wide(value.repr());
  return {value.integer()};
}

Value value_of(const Wide& number) {
  if (number >= INT64_MIN && number <= INT64_MAX) return static_cast<int64_t>(number);
  if (msb(abs(number)) > kMostBits) too_long();
  std::string digits = number.str();
  if (digits.size() - (number < 0 ? 1 : 0) > kMostDigits) too_long();
  return Value::whole_number(std::move(digits));
}

// A magnitude that is not 0, rounded to even.
double rounded(const Wide& magnitude, int exponent) {
  return std::ldexp(std::strtod(magnitude.str().c_str(), nullptr), exponent);
}

double power_of_floats(double a, double b) {
  if (a == 0) throw TemplateError("0.0 cannot be raised to a negative power");
  return std::pow(a, b);
}

Value wide_power(const Value& left, const Value& right) {
  const Wide exponent = wide_of(right);
  if (exponent < 0) return power_of_floats(left.number(), right.number());
  Wide base = wide_of(left);
  if (exponent == 0 || base == 1) return 1;
  if (base == 0) return 0;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  // A number of n bits is at least 2^(n-1).
  if (exponent > kMostBits || msb(abs(base)) * static_cast<size_t>(exponent) > kMostBits) too_long();
  return value_of(pow(base, static_cast<unsigned>(exponent)));
}

// Towards minus infinity, as Python divides.
Value wide_division(bool quotient, const Wide& a, const Wide& b) {
  Wide whole, rest;
  divide_qr(a, b, whole, rest);
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    whole -= 1;
  }
  return value_of(quotient ? whole : rest);
}

Value wide_arithmetic(std::string_view name, const Value& left, const Value& right) {
  if (name == "**") return wide_power(left, right);
  const Wide a = wide_of(left), b = wide_of(right);
  if (name == "+") return value_of(a + b);
  if (name == "-") return value_of(a - b);
  if (name == "*") return value_of(a * b);
  return wide_division(name == "//", a, b);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'z' ? small - 'a' + 10 : 99;
}

}  // namespace

Value whole_arithmetic(std::string_view name, const Value& left, const Value& right) {
  const bool divides = name == "//" || name == "%";
  if (divides && !right.truth()) throw TemplateError("integer division or modulo by zero");
  if (left.is_digits() || right.is_digits() || name == "**") return wide_arithmetic(name, left, right);
  const int64_t a = left.integer(), b = right.integer();
  int64_t result = 0;
  const bool overflow = name == "+"   ? __builtin_add_overflow(a, b, &result)
                        : name == "-" ? __builtin_sub_overflow(a, b, &result)
                        : name == "*" ? __builtin_mul_overflow(a, b, &result)
                                      : b == -1;
  if (overflow) return wide_arithmetic(name, left, right);
  if (!divides) return result;
  const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
  return name == "//" ? quotient : a - b * quotient;
}

double whole_quotient(const Value& left, const Value& right) {
  if (!right.truth()) throw TemplateError("division by zero");
  constexpr int64_t kExact = int64_t{1} << 53;
  const auto exact = [](const Value& value) {
    return !value.is_digits() && value.integer() <= kExact && value.integer() >= -kExact;
  };
  if (exact(left) && exact(right)) return left.number() / right.number();
  const Wide a = wide_of(left), b = wide_of(right);
  if (a == 0) return 0;
  // 70 bits at least of the quotient; what is cut off shows in the last one.
  const Wide over = abs(a), under = abs(b);
  const int shift = 70 - static_cast<int>(msb(over)) + static_cast<int>(msb(under));
  Wide whole, rest;
  divide_qr(shift > 0 ? Wide(over << static_cast<unsigned>(shift)) : over,
            shift < 0 ? Wide(under << static_cast<unsigned>(-shift)) : under, whole, rest);
  const double magnitude = rounded(whole * 2 + (rest != 0 ? 1 : 0), -shift - 1);
  if (std::isinf(magnitude)) throw TemplateError("integer division result too large for a float");
  return (a < 0) == (b < 0) ? magnitude : -magnitude;
}

std::partial_ordering order_of_whole(const Value& whole, double number) {
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (std::isinf(number)) return number > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
  const Wide a = wide_of(whole), b(std::trunc(number));
  if (a != b) return a < b ? std::partial_ordering::less : std::partial_ordering::greater;
  return 0.0 <=> number - std::trunc(number);
}

std::optional<Value> whole_of_digits(std::string_view digits, int base, bool negative) {
  if (digits.empty()) return std::nullopt;
  for (const char c : digits)
    if (digit_of(c) >= base) return std::nullopt;
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  if (digits.size() > kMostBits + 1) too_long();
  if (base == 10) {
    if (digits.size() > kMostDigits) too_long();
    return Value::whole_number((negative && digits != "0" ? "-" : "") + std::string(digits));
  }
  Wide number = 0;
  for (const char c : digits) number = number * base + digit_of(c);
  return value_of(negative ? Wide(-number) : number);
}

std::optional<Value> whole_of_literal(std::string_view text) {
  std::string plain(text);
  std::erase(plain, '_');
  const char mark = plain.size() > 2 && plain[0] == '0' ? static_cast<char>(plain[1] | 0x20) : '0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  return whole_of_digits(base == 10 ? plain : plain.substr(2), base, false);
}

std::string digits_of_magnitude(const Value& whole, int base) {
  const Wide magnitude = abs(wide_of(whole));
  if (base == 16) return magnitude.str(0, std::ios_base::hex);
  if (base == 8) return magnitude.str(0, std::ios_base::oct);
  std::string out;
  for (int64_t i = bit_length(whole); i-- > 0;) out += bit_test(magnitude, static_cast<unsigned>(i)) ? '1' : '0';
  return out.empty() ? "0" : out;
}

int64_t bit_length(const Value& whole) {
  const Wide magnitude = abs(wide_of(whole));
  return magnitude == 0 ? 0 : static_cast<int64_t>(msb(magnitude)) + 1;
}

}  // namespace tandem::model::jinja
