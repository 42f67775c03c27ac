#include "model/jinja/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "model/jinja/builtins.h"
#include "model/jinja/format_spec.h"

namespace tandem::model::jinja {

namespace {

// The numbers of fields without a name: all have one, or none.
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
      if (conversion != "s" && conversion != "r" && conversion != "a")
        throw TemplateError(fmt::format("Unknown conversion specifier '{}'", conversion));
    }
    Value value = field(inside, arguments, numbering);
    if (conversion == "a")
      value = Value(ascii_repr(value));
    else if (!conversion.empty())
      value = Value(conversion == "r" ? value.repr() : value.str());
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

// One value as the conversion `type` of a % format writes it.
std::string converted(char type, Spec spec, const Value& value) {
  const auto among = [&](std::string_view types) { return types.find(type) != std::string_view::npos; };
  const Spec of_text = {.align = spec.align, .width = spec.width, .precision = spec.precision};
  if (type == 's') return formatted_text(of_text, value.str());
  if (type == 'r') return formatted_text(of_text, value.repr());
  if (type == 'a') return formatted_text(of_text, ascii_repr(value));
  if (type == 'c') return formatted_text({.align = spec.align, .width = spec.width}, character_of(value));
  if (spec.align == '<')
    spec.fill = " ";
  else if (spec.fill == "0")
    spec.align = '=';
  if (among("diuxXo")) {
    const bool whole = among("diu");
    if (!value.is_number() || (!whole && value.is_float()))
      throw TemplateError(fmt::format("%{} format: {} is required, not {}", type,
                                      whole ? "a real number" : "an integer", value.type_name()));
    spec.type = whole ? 'd' : type;
    spec.least_digits = std::exchange(spec.precision, -1);
    if (!value.is_float()) return formatted_int(spec, value);
    if (std::isnan(value.number())) throw TemplateError("cannot convert float NaN to integer");
    return formatted_int(spec, to_int(value, {}));
  }
  if (!among("eEfFgG")) throw TemplateError(fmt::format("unsupported format character '{}'", type));
  spec.type = type;
  return formatted_float(spec, value.number());
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
    if (at < text.size() && std::string_view("hlL").find(text[at]) != std::string_view::npos)
      ++at;  // of C, and nothing
    if (at >= text.size()) throw TemplateError("incomplete format");
    const char type = text[at];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (!named && used >= list.size()) throw TemplateError("not enough arguments for format string");
    out += converted(type, spec, named ? *named : list[used++]);
    check_size(out);
  }
  if (used < list.size() && !values.is_dict() && (used > 0 || values.is_tuple() || !values.is_list()))
    throw TemplateError("not all arguments converted during string formatting");
  return out;
}

}  // namespace tandem::model::jinja
