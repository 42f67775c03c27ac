#include "model/jinja/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {

namespace {

constexpr int kWidest = 10'000;

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false;
  int width = 0, precision = -1;
};

int read_count(std::string_view text, size_t& at) {
  int count = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    count = count * 10 + (text[at] - '0');
    if (count > kWidest) throw TemplateError("a width or precision of more than 10000");
  }
  return count;
}

Spec read_spec(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  Spec spec;
  size_t at = 0;
  const auto characters = characters_of(text);
  if (characters.size() > 1 && characters[1].size() == 1 && kAligns.find(characters[1][0]) != std::string_view::npos) {
    spec.fill = characters[0];
    spec.align = characters[1][0];
    at = spec.fill.size() + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view any) { return at < text.size() && any.find(text[at]) != any.npos; };
  if (take("+- ")) spec.sign = text[at++];
  if (take("#")) spec.alternate = (++at, true);
  if (take("0")) {
    ++at;
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
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

std::string grouped(std::string digits, char mark) {
  if (mark == 0) return digits;
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, mark);
  return digits;
}

std::string sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string formatted_float(const Spec& spec, double number) {
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  std::string body;
  const char type = spec.type == '%' ? 'f' : spec.type;
  const double shown = spec.type == '%' ? magnitude * 100 : magnitude;
  if (type == 0 && spec.precision < 0)
    body = float_repr(shown);
  else if (type == 0)
    throw TemplateError("a precision of a float without a type is not supported");
  else if (std::string_view("eEfFgG").find(type) == std::string_view::npos)
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'float'", type));
  else
    body = fmt::format(fmt::runtime(fmt::format("{{:.{}{}}}", spec.precision < 0 ? 6 : spec.precision, type)), shown);
  body = grouped(std::move(body), spec.grouping);
  if (spec.type == '%') body += '%';
  return padded(spec, sign_of(spec, negative), std::move(body), spec.align == 0 ? '>' : spec.align);
}

std::string formatted_int(const Spec& spec, const Value& value) {
  if (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return formatted_float(spec, value.number());
  if (spec.precision >= 0) throw TemplateError("Precision not allowed in integer format specifier");
  std::string digits = value.is_bool() ? (value.truth() ? "1" : "0") : value.repr();
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  std::string prefix;
  switch (spec.type) {
    case 0:
    case 'd':
      digits = grouped(std::move(digits), spec.grouping);
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
  return padded(spec, sign_of(spec, negative) + prefix, std::move(digits), spec.align == 0 ? '>' : spec.align);
}

std::string formatted_text(const Spec& spec, const std::string& text) {
  if (spec.type != 0 && spec.type != 's')
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
  if (spec.align == '=' && spec.fill != "0")
    throw TemplateError("'=' alignment not allowed in string format specifier");
  std::string shown = text;
  if (const auto all = characters_of(text); spec.precision >= 0 && all.size() > static_cast<size_t>(spec.precision))
    shown = text.substr(0, static_cast<size_t>(all[static_cast<size_t>(spec.precision)].data() - text.data()));
  return padded(spec, "", std::move(shown), spec.align == 0 || spec.align == '=' ? '<' : spec.align);
}

std::string formatted(const Value& value, std::string_view text) {
  if (text.empty()) return value.str();
  const Spec spec = read_spec(text);
  if (value.is_float()) return formatted_float(spec, value.number());
  if (value.is_int() || value.is_bool()) return formatted_int(spec, value);
  if (value.is_string()) return formatted_text(spec, value.text());
  throw TemplateError(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
}

// Of fields without a name: all have a number, or none.
struct Numbering {
  size_t next = 0;
  bool by_itself = false, by_hand = false;
};

// NAME, then .ATTRIBUTE and [KEY].
Value field(std::string_view path, const Arguments& arguments, Numbering& numbering) {
  const size_t end = std::min(path.find_first_of(".["), path.size());
  const auto name = path.substr(0, end);
  const bool numbered = name.find_first_not_of("0123456789") == std::string_view::npos;
  Value value;
  if (numbered) {
    size_t at = 0;
    numbering.by_itself = numbering.by_itself || name.empty();
    numbering.by_hand = numbering.by_hand || !name.empty();
    if (numbering.by_itself && numbering.by_hand)
      throw TemplateError("fields of str.format are numbered by hand and by themselves");
    const size_t number = name.empty() ? numbering.next++ : static_cast<size_t>(read_count(name, at));
    if (number >= arguments.positional.size())
      throw TemplateError(fmt::format("Replacement index {} out of range for positional args tuple", number));
    value = arguments.positional[number];
  } else {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == arguments.named.end()) throw TemplateError(fmt::format("'{}' is not given to format", name));
    value = found->second;
  }
  for (size_t at = end; at < path.size();) {
    const bool dot = path[at] == '.';
    const size_t stop = dot ? std::min(path.find_first_of(".[", at + 1), path.size()) : path.find(']', at);
    if (stop == std::string_view::npos) throw TemplateError("expected '}' before end of string");
    const std::string key(path.substr(at + 1, stop - at - 1));
    const bool index = !dot && !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
    size_t zero = 0;
    value = dot ? attribute(value, key) : index ? item(value, Value(read_count(key, zero))) : item(value, Value(key));
    if (value.is_undefined()) throw TemplateError(value.why());
    at = dot ? stop : stop + 1;
  }
  return value;
}

// Where the field ends that begins at `at`, fields within it passed over.
size_t end_of_field(std::string_view text, size_t at) {
  int depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  throw TemplateError("Single '{' encountered in format string");
}

std::string expanded(std::string_view text, const Arguments& arguments, Numbering& numbering, int depth) {
  constexpr int kDeepest = 2;  // a format, and the fields of a specifier in it
  if (depth > kDeepest) throw TemplateError("Max string recursion exceeded");
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') throw TemplateError("Single '}' encountered in format string");
    if (c != '{') {
      out += c;
      ++at;
      continue;
    }
    const size_t end = end_of_field(text, at);
    auto inside = text.substr(at + 1, end - at - 1);
    std::string_view spec;
    if (const size_t colon = inside.find(':'); colon != std::string_view::npos) {
      spec = inside.substr(colon + 1);
      inside = inside.substr(0, colon);
    }
    if (inside.find('{') != std::string_view::npos) throw TemplateError("unexpected '{' in field name");
    std::string_view conversion;
    if (const size_t mark = inside.find('!'); mark != std::string_view::npos) {
      conversion = inside.substr(mark + 1);
      inside = inside.substr(0, mark);
      if (conversion != "s" && conversion != "r") throw TemplateError("a conversion of str.format is not supported");
    }
    Value value = field(inside, arguments, numbering);
    if (!conversion.empty()) value = Value(conversion == "r" ? value.repr() : value.str());
    const bool nested = spec.find_first_of("{}") != std::string_view::npos;
    out += formatted(value, nested ? expanded(spec, arguments, numbering, depth + 1) : std::string(spec));
    check_size(out);
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string format_braces(std::string_view text, const Arguments& arguments) {
  Numbering numbering;
  return expanded(text, arguments, numbering, 1);
}

namespace {

// What %c writes: a character, or that of a number.
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

}  // namespace

std::string format_percent(std::string_view text, const Value& values) {
  const List list = values.is_tuple() ? values.list() : List{values};
  size_t used = 0;
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    ++at;
    std::optional<Value> named;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string_view::npos) throw TemplateError("incomplete format key");
      if (!values.is_dict()) throw TemplateError("format requires a mapping");
      const auto key = text.substr(at + 1, end - at - 1);
      const Value* const found = values.find(key);
      if (found == nullptr) throw TemplateError(fmt::format("'{}'", key));
      named = *found;
      at = end + 1;
    }
    Spec spec{.align = '>'};
    for (; at < text.size() && std::string_view("-+ 0#").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+' || (text[at] == ' ' && spec.sign != '+')) spec.sign = text[at];
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.fill = "0";
    }
    spec.width = read_count(text, at);
    if (at < text.size() && text[at] == '.') spec.precision = read_count(text, ++at);
    if (at >= text.size()) throw TemplateError("incomplete format");
    const char type = text[at];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (!named && used >= list.size()) throw TemplateError("not enough arguments for format string");
    const Value value = named ? *named : list[used++];
    const bool zeros = spec.fill == "0" && spec.align != '<';
    if (!zeros) spec.fill = " ";
    if (zeros) spec.align = '=';
    if (type == 's' || type == 'r') {
      if (zeros) spec = Spec{.align = '>', .width = spec.width, .precision = spec.precision};
      out += formatted_text(spec, type == 's' ? value.str() : value.repr());
    } else if (type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o') {
      if (!value.is_number())
        throw TemplateError(fmt::format("%{} format: a real number is required, not {}", type, value.type_name()));
      if (spec.precision >= 0) throw TemplateError("a precision of a whole number in a % format is not supported");
      spec.type = type == 'i' || type == 'u' ? 'd' : type;
      out += formatted_int(spec, value.is_float() ? Value(static_cast<int64_t>(value.number())) : value);
    } else if (type == 'c') {
      out += formatted_text({.align = spec.align == '<' ? '<' : '>', .width = spec.width}, character_of(value));
    } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      spec.type = type;
      out += formatted_float(spec, value.number());
    } else {
      throw TemplateError(fmt::format("unsupported format character '{}'", type));
    }
    check_size(out);
  }
  if (used < list.size() && !values.is_dict() && (used > 0 || values.is_tuple() || !values.is_list()))
    throw TemplateError("not all arguments converted during string formatting");
  return out;
}

}  // namespace tandem::model::jinja
