#include "model/jinja/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {

namespace {

constexpr int kWidest = 10'000;
constexpr std::string_view kFloatTypes = "eEfFgG%";

bool is_among(char c, std::string_view any) { return any.find(c) != std::string_view::npos; }

void check_grouping(const Spec& spec, std::string_view type_of_value) {
  if (spec.grouping == 0 || spec.type == 0 || is_among(spec.type, "defgEGF%")) return;
  if (spec.grouping == '_' && is_among(spec.type, "boxX")) return;
  throw TemplateError(
      fmt::format("Cannot specify '{}' with '{}' of a value of type {}", spec.grouping, spec.type, type_of_value));
}

Spec read_spec(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  Spec spec;
  size_t at = 0;
  bool filled = false;
  const auto characters = characters_of(text);
  if (characters.size() > 1 && characters[1].size() == 1 && is_among(characters[1][0], kAligns)) {
    spec.fill = characters[0];
    spec.align = characters[1][0];
    at = spec.fill.size() + 1;
    filled = true;
  } else if (!text.empty() && is_among(text[0], kAligns)) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view any) { return at < text.size() && is_among(text[at], any); };
  if (take("+- ")) {
    spec.sign = text[at++];
    spec.has_sign = true;
  }
  if (take("#")) spec.alternate = (++at, true);
  if (!filled && take("0")) {  // with another alignment it fills too
    ++at;
    spec.fill = "0";
    if (spec.align == 0) spec.zeros = true;
  }
  spec.width = read_count(text, at);
  if (take(",_")) spec.grouping = text[at++];
  if (take(".")) {
    const size_t digits = ++at;
    spec.precision = read_count(text, at);
    if (at == digits) throw TemplateError("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw TemplateError(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

char align_of_number(const Spec& spec) { return spec.align != 0 ? spec.align : spec.zeros ? '=' : '>'; }

std::string padded(const Spec& spec, std::string_view sign, std::string body, char align) {
  const size_t length = characters_of(sign).size() + characters_of(body).size();
  const size_t missing = static_cast<size_t>(spec.width) > length ? static_cast<size_t>(spec.width) - length : 0;
  const auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (align == '=') return std::string(sign) + fill(missing) + body;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  return fill(before) + std::string(sign) + body + fill(missing - before);
}

// Digits with marks between groups, and with zeros before them that fill `least` characters, marks included.
std::string grouped(std::string_view digits, char mark, int size, int least) {
  std::string out;
  int remaining = static_cast<int>(digits.size());
  for (bool first = true; first || remaining > 0 || least > 0; first = false) {
    if (!first) out.insert(0, 1, mark);
    if (!first) --least;
    const int length = std::min(size, std::max({remaining, least, 1}));
    const int taken = std::min(remaining, length);
    out.insert(0, digits.substr(static_cast<size_t>(remaining - taken), static_cast<size_t>(taken)));
    out.insert(0, static_cast<size_t>(length - taken), '0');
    remaining -= taken;
    least -= length;
  }
  return out;
}

// The padded number of `sign`, whole digits and what follows them.
std::string number_of(const Spec& spec, const std::string& sign, std::string_view digits, std::string_view rest) {
  const char align = align_of_number(spec);
  std::string body(digits);
  if (spec.grouping != 0 && !digits.empty()) {
    const int others = static_cast<int>(sign.size() + rest.size());
    const int least = spec.fill == "0" && align == '=' ? spec.width - others : 0;
    body = grouped(digits, spec.grouping, is_among(spec.type, "boxX") && spec.type != 0 ? 4 : 3, least);
  }
  return padded(spec, sign, body.append(rest), align);
}

// C's %#g keeps zeros and the point at their end, which fmt does not where no digit follows it.
std::string general_with_point(double number, int precision, bool capital) {
  std::string body(static_cast<size_t>(precision) + 32, '\0');
  const int length = std::snprintf(body.data(), body.size(), capital ? "%#.*G" : "%#.*g", precision, number);
  body.resize(static_cast<size_t>(length));
  return body;
}

std::string sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

}  // namespace

int read_count(std::string_view text, size_t& at) {
  int count = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    count = count * 10 + (text[at] - '0');
    if (count > kWidest) throw TemplateError("a width or precision of more than 10000");
  }
  return count;
}

std::string formatted_float(const Spec& spec, double number) {
  check_grouping(spec, "float");
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  std::string body;
  const char type = spec.type == '%' ? 'f' : spec.type == 'n' ? 'g' : spec.type;
  const double shown = spec.type == '%' ? magnitude * 100 : magnitude;
  if (type == 0 && spec.precision < 0) {
    body = float_repr(shown);
    const size_t exponent = body.find('e');
    if (spec.alternate && exponent != std::string::npos && body.find('.') == std::string::npos)
      body.insert(exponent, ".");
  } else if (type == 0) {
    throw TemplateError("a precision of a float without a type is not supported");
  } else if (!is_among(type, kFloatTypes)) {
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'float'", type));
  } else {
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    const bool general = type == 'g' || type == 'G';
    body =
        general && spec.alternate
            ? general_with_point(shown, precision, type == 'G')
            : fmt::format(fmt::runtime(fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type)), shown);
  }
  if (spec.type == '%') body += '%';
  const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
  return number_of(spec, sign_of(spec, negative), std::string_view(body).substr(0, whole),
                   std::string_view(body).substr(whole));
}

std::string formatted_int(const Spec& spec, const Value& value) {
  if (spec.type != 0 && is_among(spec.type, kFloatTypes)) return formatted_float(spec, value.number());
  check_grouping(spec, "int");
  if (spec.precision >= 0) throw TemplateError("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (spec.has_sign) throw TemplateError("Sign not allowed with integer format specifier 'c'");
    if (spec.alternate) throw TemplateError("Alternate form (#) not allowed with integer format specifier 'c'");
    return padded(spec, "", character_of(value), align_of_number(spec));
  }
  std::string digits = value.is_bool() ? (value.truth() ? "1" : "0") : value.repr();
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  std::string prefix;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      break;
    case 'x':
    case 'X':
    case 'o':
    case 'b': {
      digits = digits_of_magnitude(value, spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 16);
      if (spec.type == 'X')
        std::ranges::transform(digits, digits.begin(), [](char c) { return c >= 'a' ? c - 32 : c; });
      if (spec.alternate) prefix = std::string("0") + spec.type;
      break;
    }
    default:
      throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'int'", spec.type));
  }
  if (const auto least = static_cast<size_t>(std::max(spec.least_digits, 0)); digits.size() < least)
    digits.insert(0, least - digits.size(), '0');
  return number_of(spec, sign_of(spec, negative) + prefix, digits, "");
}

std::string formatted_text(const Spec& spec, const std::string& text) {
  const auto refuse = [](std::string_view what) {
    throw TemplateError(fmt::format("{} not allowed in string format specifier", what));
  };
  if (spec.type != 0 && spec.type != 's')
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
  if (spec.grouping != 0) throw TemplateError(fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  if (spec.has_sign) refuse("Sign");
  if (spec.alternate) refuse("Alternate form (#)");
  if (spec.align == '=') refuse("'=' alignment");
  std::string shown = text;
  if (const auto all = characters_of(text); spec.precision >= 0 && all.size() > static_cast<size_t>(spec.precision))
    shown = text.substr(0, static_cast<size_t>(all[static_cast<size_t>(spec.precision)].data() - text.data()));
  return padded(spec, "", std::move(shown), spec.align == 0 ? '<' : spec.align);
}

std::string formatted(const Value& value, std::string_view text) {
  if (text.empty()) return value.str();
  const Spec spec = read_spec(text);
  if (value.is_float()) return formatted_float(spec, value.number());
  if (value.is_int() || value.is_bool()) return formatted_int(spec, value);
  if (value.is_string()) return formatted_text(spec, value.text());
  throw TemplateError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

std::string character_of(const Value& value) {
  if (value.is_string() && value.length() == 1) return value.text();
  if (!value.is_int() && !value.is_bool()) throw TemplateError("%c requires int or char");
  constexpr int64_t kLast = 0x10ffff, kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;
  const int64_t code = value.integer();
  if (code < 0 || code > kLast) throw TemplateError("%c arg not in range(0x110000)");
  if (code >= kFirstSurrogate && code <= kLastSurrogate) throw TemplateError("half a character is not supported");
  std::string out;
  append_utf8(static_cast<char32_t>(code), out);
  return out;
}

std::string ascii_repr(const Value& value) {
  constexpr char32_t kLastAscii = 0x7f, kLastOfTwo = 0xff, kLastOfFour = 0xffff;
  const std::string text = value.repr();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(std::string_view(text).substr(at));
    const char32_t character = step.character;
    const auto code = static_cast<uint32_t>(character);
    if (character <= kLastAscii)
      out += text[at];
    else if (character <= kLastOfTwo)
      out += fmt::format("\\x{:02x}", code);
    else if (character <= kLastOfFour)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\U{:08x}", code);
    at += step.length;
  }
  return out;
}

}  // namespace tandem::model::jinja
