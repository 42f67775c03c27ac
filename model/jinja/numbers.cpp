// The filters round, int and float, as jinja2 and Python have them but for whole numbers beyond 63 bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "model/jinja/builtins.h"

namespace tandem::model::jinja {

namespace {

// A number as Python reads one; nothing where it is none. The whole of `text`, stripped.
std::optional<double> number_in(const Value& value) {
  if (!value.is_string()) return std::nullopt;
  const std::string text = strip(value.text(), nullptr, true, true);
  if (text.empty() || text.find_first_of("xX(") != std::string::npos) return std::nullopt;
  if (text.find('_') != std::string::npos && text.find_first_not_of("0123456789_.eE+-") == std::string::npos)
    throw TemplateError("a number with underscores in a text is not supported");
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return *end == 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

Value round_number(const Value& value, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const std::string how = p.text(1, "common");
  const int64_t precision = p[0] ? p[0]->integer() : 0;
  const double factor = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return std::ceil(value.number() * factor) / factor;
  if (how == "floor") return std::floor(value.number() * factor) / factor;
  if (precision < 0) throw TemplateError("round to a negative precision is not supported");
  if (!value.is_float()) return value.integer();
  if (precision == 0) return std::nearbyint(value.number());
  return std::strtod(fmt::format("{:.{}f}", value.number(), std::min<int64_t>(precision, 340)).c_str(), nullptr);
}

Value to_int(const Value& value, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  if (p[1]) throw TemplateError("int with a base is not supported");
  if (value.is_undefined()) throw TemplateError(value.why());
  if (value.is_digits()) return value;
  if (value.is_number() && !value.is_float()) return value.integer();
  const auto number = value.is_float() ? std::optional(value.number()) : number_in(value);
  if (!number || (!value.is_float() && !std::isfinite(*number))) return p[0] ? *p[0] : Value(0);
  if (!(std::fabs(*number) < 9e15)) throw TemplateError("a whole number of more than 15 digits is not supported");
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
