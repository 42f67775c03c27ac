// Values as JSON, as Python's json.dumps writes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/value.h"

namespace tandem::model::jinja {

namespace {

void put_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    const auto c = static_cast<uint32_t>(step.character);
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7f && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", c);
    } else if (ensure_ascii && c >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      out += text.substr(at, step.length);
    }
    at += step.length;
  }
  out += '"';
}

void put_json(const Value& value, const JsonStyle& style, int depth, std::string& out) {
  check_size(out);
  const auto line = [&](int at) {
    if (style.indent >= 0) out += "\n" + std::string(static_cast<size_t>(style.indent) * at, ' ');
  };
  if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.truth() ? "true" : "false";
  } else if (value.is_float()) {
    const double number = value.number();
    out += std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                : float_repr(number);
  } else if (value.is_int()) {
    out += value.str();
  } else if (value.is_string()) {
    put_json_string(value.text(), style.ensure_ascii, out);
  } else if (value.is_plain_list() || value.is_tuple()) {
    out += '[';
    for (size_t i = 0; i < value.list().size(); ++i) {
      if (i) out += style.item_separator;
      line(depth + 1);
      put_json(value.list()[i], style, depth + 1, out);
    }
    if (!value.list().empty()) line(depth);
    out += ']';
  } else if (value.is_dict()) {
    Dict items = value.dict();
    if (style.sort_keys) std::sort(items.begin(), items.end(), [](auto& a, auto& b) { return a.first < b.first; });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out += style.item_separator;
      line(depth + 1);
      put_json_string(items[i].first, style.ensure_ascii, out);
      out += style.key_separator;
      put_json(items[i].second, style, depth + 1, out);
    }
    if (!items.empty()) line(depth);
    out += '}';
  } else {
    throw TemplateError(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
  }
}

}  // namespace

std::string to_json_text(const Value& value, const JsonStyle& style) {
  std::string out;
  put_json(value, style, 0, out);
  return out;
}

}  // namespace tandem::model::jinja
