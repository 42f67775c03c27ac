// Arithmetic of whole numbers of any size, up to as many digits as Python writes of one.
//
// Numbers of 63 bits and a sign are computed by the processor, others by Boost.Multiprecision. All functions throw
// TemplateError where Python raises an exception, and where a result has more than kMostDigits digits.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

inline constexpr size_t kMostDigits = 4300;  // Python's own bound for texts

// `name`: + - * // % or **, of bools and whole numbers. A negative exponent gives a float.
Value whole_arithmetic(std::string_view name, const Value& left, const Value& right);

// left / right, rounded once.
double whole_quotient(const Value& left, const Value& right);

// A whole number beside a float, exactly; unordered beside NaN.
std::partial_ordering order_of_whole(const Value& whole, double number);

// Digits of a base from 2 to 36, and nothing else; nothing where there are none or others.
std::optional<Value> whole_of_digits(std::string_view digits, int base, bool negative);

// A literal of a template, as the lexer leaves it: 0x1F, 0b11, 0o17, 1_000.
std::optional<Value> whole_of_literal(std::string_view text);

// The magnitude in a base of 2, 8 or 16, in small letters.
std::string digits_of_magnitude(const Value& whole, int base);

// Python's int.bit_length.
int64_t bit_length(const Value& whole);

}  // namespace tandem::model::jinja
