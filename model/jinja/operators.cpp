// Arithmetic of numbers, texts and lists, as Python has it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "model/jinja/builtins.h"
#include "model/jinja/text_format.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {
namespace {

Value repeat(const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is_string()) {
    if (value.text().size() * static_cast<uint64_t>(count) > kLargestText ||
        count > static_cast<int64_t>(kLargestText)) {
      throw TemplateError("a text of more than 64 MiB");
    }
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += value.text();
    return value.is_markup() ? Value::markup(std::move(out)) : Value(std::move(out));
  }
  if (count > static_cast<int64_t>(kLargestList) || value.list().size() * count > kLargestList) {
    throw TemplateError("a list of more than 2^20 elements");
  }
  List out;
  for (int64_t i = 0; i < count; ++i) out.insert(out.end(), value.list().begin(), value.list().end());
  return value.is_tuple() ? Value::tuple(std::move(out)) : Value(std::move(out));
}

Value add(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    if (left.text().size() + right.text().size() > kLargestText) throw TemplateError("a text of more than 64 MiB");
    if (!left.is_markup() && !right.is_markup()) return left.text() + right.text();
    return Value::markup((left.is_markup() ? left.text() : escape_html(left.text())) +
                         (right.is_markup() ? right.text() : escape_html(right.text())));
  }
  if ((left.is_plain_list() && right.is_plain_list()) || (left.is_tuple() && right.is_tuple())) {
    List list = left.list();
    if (list.size() + right.list().size() > kLargestList) throw TemplateError("a list of more than 2^20 elements");
    list.insert(list.end(), right.list().begin(), right.list().end());
    return left.is_tuple() ? Value::tuple(list) : Value(list);
  }
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) throw TemplateError(side->why());
  }
  throw TemplateError(
      fmt::format("unsupported operand type(s) for +: '{}' and '{}'", left.type_name(), right.type_name()));
}

double power(double a, double b) {
  if (a == 0 && b < 0) throw TemplateError("0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isfinite(a) && std::isfinite(b)) {
    if (std::isnan(result)) throw TemplateError("a complex number is not supported");
    if (std::isinf(result)) throw TemplateError("(34, 'Numerical result out of range')");
  }
  return result;
}

}  // namespace

Value binary(std::string_view name, const Value& left, const Value& right) {
  const auto repeats = [](const Value& v) { return v.is_string() || v.is_plain_list() || v.is_tuple(); };
  if (name == "*" && repeats(left)) return repeat(left, right.integer());
  if (name == "*" && repeats(right)) return repeat(right, left.integer());
  if (name == "+" && !(left.is_number() && right.is_number())) return add(left, right);
  if (name == "%" && left.is_markup()) throw TemplateError("'%' of a value marked safe is not supported");
  if (name == "%" && left.is_string()) return format_percent(left.text(), right);
  if (!left.is_float() && !right.is_float()) {
    for (const Value* side : {&left, &right})
      if (!side->is_number()) side->integer();  // throws, and says what it is
    return name == "/" ? Value(whole_quotient(left, right)) : whole_arithmetic(name, left, right);
  }
  const double a = left.number();
  const double b = right.number();
  if ((name == "/" || name == "//" || name == "%") && b == 0) throw TemplateError("division by zero");
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "/") return a / b;
  if (name == "//") return std::floor(a / b);
  if (name == "%") return a - b * std::floor(a / b);
  return power(a, b);
}

}  // namespace tandem::model::jinja
