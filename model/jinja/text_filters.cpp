#include "model/jinja/text_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "model/jinja/builtins.h"

namespace tandem::model::jinja {

Value force_escape(const Value& value, const Arguments& arguments) {
  const Parameters p("forceescape", arguments, {});
  return Value::markup(escape_html(value.str()));
}

namespace {

// Up to the first tag or comment without an end.
std::string without_tags(std::string_view text) {
  std::string out;
  size_t at = 0;
  for (size_t begin = 0; (begin = text.find('<', at)) != std::string_view::npos;) {
    const bool comment = text.substr(begin).starts_with("<!--");
    const size_t end = comment ? text.find("-->", begin + 4) : text.find('>', begin);
    if (end == std::string_view::npos) break;
    out += text.substr(at, begin - at);
    at = end + (comment ? 3 : 1);
  }
  return out.append(text.substr(at));
}

// The character of an entity without its & and ;, as UTF-8. Of the 2,231 names of HTML only those are known that
// escaping writes, and the space.
std::string entity(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\xc2\xa0"}};
  for (const auto& [known, text] : kNames) {
    if (name == known) return std::string(text);
  }
  uint32_t number = 0;
  const bool hexadecimal = name.starts_with("#x") || name.starts_with("#X");
  const auto digits = name.substr(std::min(name.size(), hexadecimal ? size_t{2} : size_t{1}));
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, number, hexadecimal ? 16 : 10);
  const bool read = name.starts_with("#") && error == std::errc() && end == last;
  // What HTML replaces: control characters of Windows, and numbers that are no character.
  const bool plain = number >= 0xa0 || (number >= 0x20 && number < 0x7f) || number == '\n' || number == '\t';
  if (!read || !plain || number > 0xffff || (number >= 0xd800 && number < 0xe000) || number >= 0xfdd0)
    throw TemplateError(fmt::format("the entity '&{};' is not supported", name));
  std::string text;
  append_utf8(number, text);
  return text;
}

std::string without_entities(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '&') {
      out += text[at++];
      continue;
    }
    const size_t end =
        text.find_first_not_of("#0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", at + 1);
    if (end == at + 1 || at + 1 == text.size()) {  // a lone mark
      out += text[at++];
      continue;
    }
    const auto name = text.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
    if (end == std::string_view::npos || text[end] != ';')  // some names need no end
      throw TemplateError(fmt::format("the entity '&{}' without ';' is not supported", name));
    out += entity(name);
    at = end + 1;
  }
  return out;
}

std::string percent_encoded(std::string_view text, bool of_query) {
  std::string out;
  for (const char c : text) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !of_query);
    if (kept) {
      out += c;
    } else if (c == ' ' && of_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// Names of a mapping in order, as pprint prints it.
std::string sorted_repr(const Value& value) {
  const auto joined = [](const List& list, const auto& text_of) {
    std::string out;
    for (const Value& element : list) out += (out.empty() ? "" : ", ") + text_of(element);
    return out;
  };
  if (value.is_dict()) {
    Dict sorted = value.dict();
    std::ranges::stable_sort(sorted, {}, &std::pair<std::string, Value>::first);
    std::string out;
    for (const auto& [key, inside] : sorted)
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", Value(key).repr(), sorted_repr(inside));
    return "{" + out + "}";
  }
  if (value.is_plain_list()) return "[" + joined(value.list(), sorted_repr) + "]";
  if (value.is_tuple() && !value.is_group())
    return "(" + joined(value.list(), sorted_repr) + (value.list().size() == 1 ? ",)" : ")");
  return value.repr();
}

}  // namespace

Value strip_tags(const Value& value, const Arguments& arguments) {
  const Parameters p("striptags", arguments, {});
  const std::string text = without_tags(value.str());
  std::string words;
  bool gap = false;
  for (const auto character : characters_of(text)) {
    const bool space = is_python_space(next_character(character).character);
    if (!space && gap && !words.empty()) words += ' ';
    gap = space;
    if (!space) words += character;
  }
  return without_entities(words);
}

Value url_encode(const Value& value, const Arguments& arguments) {
  const Parameters p("urlencode", arguments, {});
  if (value.is_string() || !(value.is_dict() || value.is_list())) return percent_encoded(value.str(), false);
  std::string query;
  const auto add = [&](const Value& name, const Value& of) {
    query += fmt::format("{}{}={}", query.empty() ? "" : "&", percent_encoded(name.str(), true),
                         percent_encoded(of.str(), true));
  };
  if (value.is_dict()) {
    for (const auto& [name, of] : value.dict()) add(Value(name), of);
    return query;
  }
  for (const Value& pair : value.elements()) {
    const List both = pair.elements();
    if (both.size() != 2) throw TemplateError("urlencode takes a text, a mapping or a list of pairs");
    add(both[0], both[1]);
  }
  return query;
}

Value xml_attributes(const Value& value, const Arguments& arguments) {
  const Parameters p("xmlattr", arguments, {"autospace"});
  std::string out;
  for (const auto& [name, of] : value.dict()) {
    if (of.is_none() || of.is_undefined()) continue;
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      throw TemplateError(fmt::format("Invalid character in attribute name: {}", Value(name).repr()));
    const std::string text = of.is_markup() ? of.text() : escape_html(of.str());
    check_size(out.append(out.empty() ? "" : " ").append(escape_html(name)).append("=\"").append(text).append("\""));
  }
  if (p.flag(0, true) && !out.empty()) out.insert(0, " ");
  return out;
}

Value file_size(const Value& value, const Arguments& arguments) {
  const Parameters p("filesizeformat", arguments, {"binary"});
  const double bytes = to_float(value, {}).number();
  if (value.is_string() &&
      strip(value.text(), nullptr, true, true).find_first_not_of("0123456789.") != std::string::npos)
    throw TemplateError("filesizeformat of such a text is not supported");
  const bool binary = p.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return fmt::format("{} Bytes", static_cast<int64_t>(bytes));
  constexpr std::array kDecimal = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  constexpr std::array kBinary = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  for (size_t i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kDecimal.size())
      return fmt::format("{:.1f} {}", base * bytes / unit, binary ? kBinary[i] : kDecimal[i]);
  }
}

Value truncate(const Value& value, const Arguments& arguments) {
  const Parameters p("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::string end = p.text(2, "...");
  const int64_t length = p[0] ? p[0]->integer() : 255, leeway = p[3] && !p[3]->is_none() ? p[3]->integer() : 5;
  const auto marks = static_cast<int64_t>(characters_of(end).size());
  if (length < marks) throw TemplateError(fmt::format("expected length >= {}, got {}", marks, length));
  if (leeway < 0) throw TemplateError(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto all = characters_of(value.text());
  if (static_cast<int64_t>(all.size()) <= length + leeway) return value;
  std::string kept;
  for (int64_t i = 0; i < length - marks; ++i) kept += all[static_cast<size_t>(i)];
  if (const size_t space = kept.rfind(' '); !p.flag(1, false) && space != std::string::npos) kept.resize(space);
  return kept + end;
}

Value pretty(const Value& value, const Arguments& arguments) {
  const Parameters p("pprint", arguments, {});
  const std::string text = sorted_repr(value);
  constexpr size_t kWidth = 80;
  if (characters_of(text).size() > kWidth) throw TemplateError("pprint of more than one line is not supported");
  return text;
}

}  // namespace tandem::model::jinja
