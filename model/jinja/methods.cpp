// Methods of strings, lists, dicts and floats, as Python has them.
#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/casing.h"
#include "model/jinja/text_format.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

List split_text(std::string_view text, const Value* separator, int64_t most, bool from_right) {
  List parts;
  if (separator == nullptr || separator->is_none()) {
    const auto all = characters_of(text);
    const auto space = [&](size_t i) { return is_python_space(next_character(all[i]).character); };
    if (from_right && most >= 0) {
      for (size_t end = all.size(); end > 0;) {
        while (end > 0 && space(end - 1)) --end;
        if (end == 0) break;
        size_t begin = end;
        if (static_cast<int64_t>(parts.size()) == most)
          begin = 0;
        else
          while (begin > 0 && !space(begin - 1)) --begin;
        parts.emplace_back(std::string(all[begin].data(), all[end - 1].data() + all[end - 1].size()));
        end = begin;
      }
      std::reverse(parts.begin(), parts.end());
      return parts;
    }
    for (size_t i = 0; i < all.size();) {
      while (i < all.size() && space(i)) ++i;
      if (i == all.size()) break;
      size_t end = i;
      if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
        end = all.size();
        parts.emplace_back(text.substr(static_cast<size_t>(all[i].data() - text.data())));
      } else {
        while (end < all.size() && !space(end)) ++end;
        parts.emplace_back(std::string(all[i].data(), all[end - 1].data() + all[end - 1].size()));
      }
      i = end;
    }
    return parts;
  }
  const std::string& mark = separator->text();
  if (mark.empty()) throw TemplateError("empty separator");
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? text.rfind(mark) : text.find(mark);
    if (at == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(at + mark.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + mark.size());
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  std::string out;
  if (from.empty()) {  // before each character, and behind the last
    const auto all = characters_of(text);
    for (size_t i = 0; i <= all.size(); ++i) {
      if (most < 0 || static_cast<int64_t>(i) < most) out += to;
      if (i < all.size()) out += all[i];
      check_size(out);
    }
    return out;
  }
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    if (out.size() > kLargestText) throw TemplateError("a text of more than 64 MiB");
  }
  return out.append(text);
}

// The part [begin, end) of a text in characters, by arguments as of str.find; `skipped`: characters before it.
std::string_view bounded(const std::string& text, const Value* begin, const Value* end, int64_t& skipped) {
  const auto all = characters_of(text);
  const auto size = static_cast<int64_t>(all.size());
  const auto place = [&](const Value* bound, int64_t otherwise) {
    if (bound == nullptr || bound->is_none()) return otherwise;
    const int64_t at = bound->integer();
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  skipped = place(begin, 0);
  const int64_t last = std::max(place(end, size), skipped);
  const auto byte = [&](int64_t at) {
    return at == size ? text.size() : static_cast<size_t>(all[static_cast<size_t>(at)].data() - text.data());
  };
  return std::string_view(text).substr(byte(skipped), byte(last) - byte(skipped));
}

// Nothing is found there, not even an empty text.
bool begins_beyond(const Value& self, const Value* begin) {
  return begin != nullptr && !begin->is_none() && begin->integer() > static_cast<int64_t>(self.length());
}

bool starts_or_ends(const Value& self, const Arguments& arguments, bool starts) {
  const Parameters p(starts ? "startswith" : "endswith", arguments, {"affix", "start", "end"});
  const List affixes = p.need(0).is_tuple() ? p.need(0).list() : List{p.need(0)};
  int64_t skipped = 0;
  const auto text = bounded(self.text(), p[1], p[2], skipped);
  const bool beyond = begins_beyond(self, p[1]);
  return std::any_of(affixes.begin(), affixes.end(), [&](const Value& affix) {
    const std::string& what = affix.text();
    return !beyond && (starts ? text.starts_with(what) : text.ends_with(what));
  });
}

int64_t find_text(const Value& self, const Arguments& arguments, bool from_right) {
  const Parameters p("find", arguments, {"sub", "start", "end"});
  int64_t skipped = 0;
  const auto text = bounded(self.text(), p[1], p[2], skipped);
  if (begins_beyond(self, p[1])) return -1;
  const size_t at = from_right ? text.rfind(p.need(0).text()) : text.find(p.need(0).text());
  if (at == std::string::npos) return -1;
  return skipped + static_cast<int64_t>(characters_of(text.substr(0, at)).size());
}

int64_t index_of_text(const Value& self, const Arguments& arguments, bool from_right) {
  const int64_t found = find_text(self, arguments, from_right);
  if (found < 0) throw TemplateError("substring not found");
  return found;
}

Value partition(const Value& self, const Arguments& arguments, bool from_right) {
  const std::string& mark = Parameters("partition", arguments, {"sep"}).need(0).text();
  const std::string& text = self.text();
  if (mark.empty()) throw TemplateError("empty separator");
  const size_t at = from_right ? text.rfind(mark) : text.find(mark);
  if (at == std::string::npos)
    return from_right ? Value::tuple({Value(""), Value(""), self}) : Value::tuple({self, Value(""), Value("")});
  return Value::tuple({Value(text.substr(0, at)), Value(mark), Value(text.substr(at + mark.size()))});
}

// str.ljust, rjust and center, as format specifiers have them.
Value justified(const Value& self, const Arguments& arguments, char align) {
  const Parameters p("width", arguments, {"width", "fillchar"});
  const std::string fill = p[1] ? p[1]->text() : " ";
  const auto length = static_cast<int64_t>(self.length());
  const int64_t missing = std::max<int64_t>(p.need(0).integer() - length, 0);
  if (missing > 1'000'000 || characters_of(fill).size() != 1)
    throw TemplateError("a width or fill that is not supported");
  // Python puts the odd one before the text where the width is odd.
  const int64_t before = align == '>' ? missing : align == '^' ? missing / 2 + (missing & (length + missing) & 1) : 0;
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += self.text();
  for (int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

Value zero_filled(const Value& self, const Arguments& arguments) {
  const int64_t width = Parameters("zfill", arguments, {"width"}).need(0).integer();
  const int64_t missing = width - static_cast<int64_t>(self.length());
  if (missing <= 0) return self;
  if (missing > 1'000'000) throw TemplateError("a width of more than a million");
  std::string text = self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  return text.insert(sign ? 1 : 0, static_cast<size_t>(missing), '0');
}

List split_lines(std::string_view text, bool keep_ends) {
  List lines;
  std::string line;
  const auto all = characters_of(text);
  for (size_t i = 0; i < all.size(); ++i) {
    const char32_t c = next_character(all[i]).character;
    const bool ends = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) {
      line += all[i];
      continue;
    }
    if (keep_ends) line += all[i];
    if (c == '\r' && i + 1 < all.size() && all[i + 1] == "\n") line += keep_ends ? all[++i] : (++i, "");
    lines.emplace_back(std::exchange(line, {}));
  }
  if (!line.empty()) lines.emplace_back(line);
  return lines;
}

bool all_characters(const Value& self, bool (*test)(UChar32)) {
  const auto all = characters_of(self.text());
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](std::string_view character) {
    return test(static_cast<UChar32>(next_character(character).character));
  });
}

Value expand_tabs(const Value& self, const Arguments& arguments) {
  const Parameters p("expandtabs", arguments, {"tabsize"});
  const int64_t size = p[0] ? p[0]->integer() : 8;
  if (size > 1000) throw TemplateError("a tab of more than 1000 columns");
  std::string text;
  int64_t column = 0;
  for (const auto character : characters_of(self.text())) {
    if (character == "\t") {
      const int64_t width = size > 0 ? size - column % size : 0;
      text.append(static_cast<size_t>(width), ' ');
      column += width;
      check_size(text);
    } else {
      text += character;
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    }
  }
  return text;
}

// Capitals stand only behind what has no case, small letters only behind what has.
bool is_titled(std::string_view text) {
  bool any = false, behind_cased = false;
  for (const auto character : characters_of(text)) {
    const auto c = static_cast<UChar32>(next_character(character).character);
    const bool capital = u_hasBinaryProperty(c, UCHAR_UPPERCASE) || u_istitle(c);
    const bool small = u_hasBinaryProperty(c, UCHAR_LOWERCASE);
    if ((capital && behind_cased) || (small && !behind_cased)) return false;
    behind_cased = capital || small;
    any = any || behind_cased;
  }
  return any;
}

template <bool kLeft, bool kRight>
Value strip_method(const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  return strip(self.text(), p[0], kLeft, kRight);
}

template <bool kRight>
Value split_method(const Value& self, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  return split_text(self.text(), p[0], p[1] ? p[1]->integer() : -1, kRight);
}

const std::pair<std::string_view, Method> kTextMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines",
     [](const Value& self, const Arguments& a) {
       return Value(split_lines(self.text(), Parameters("splitlines", a, {"keepends"}).flag(0, false)));
     }},
    {"index", [](const Value& self, const Arguments& a) { return Value(index_of_text(self, a, false)); }},
    {"rindex", [](const Value& self, const Arguments& a) { return Value(index_of_text(self, a, true)); }},
    {"partition", [](const Value& self, const Arguments& a) { return partition(self, a, false); }},
    {"rpartition", [](const Value& self, const Arguments& a) { return partition(self, a, true); }},
    {"ljust", [](const Value& self, const Arguments& a) { return justified(self, a, '<'); }},
    {"rjust", [](const Value& self, const Arguments& a) { return justified(self, a, '>'); }},
    {"center", [](const Value& self, const Arguments& a) { return justified(self, a, '^'); }},
    {"zfill", zero_filled},
    {"swapcase", [](const Value& self, const Arguments&) { return Value(swap_case(self.text())); }},
    {"casefold", [](const Value& self, const Arguments&) { return Value(fold_case(self.text())); }},
    {"format", [](const Value& self, const Arguments& a) { return Value(format_braces(self.text(), a)); }},
    {"format_map",
     [](const Value& self, const Arguments& a) {
       return Value(format_braces(self.text(), {{}, Parameters("format_map", a, {"mapping"}).need(0).dict()}));
     }},
    {"expandtabs", expand_tabs},
    {"istitle", [](const Value& self, const Arguments&) { return Value(is_titled(self.text())); }},
    {"isprintable",
     [](const Value& self, const Arguments&) {
       const auto printable = [](UChar32 c) { return c == ' ' || !(U_GET_GC_MASK(c) & (U_GC_C_MASK | U_GC_Z_MASK)); };
       return Value(self.text().empty() || all_characters(self, printable));
     }},
    {"isidentifier",
     [](const Value& self, const Arguments&) {
       const auto first = static_cast<UChar32>(next_character(self.text()).character);
       return Value(!self.text().empty() && (first == '_' || u_hasBinaryProperty(first, UCHAR_XID_START)) &&
                    all_characters(self, [](UChar32 c) { return u_hasBinaryProperty(c, UCHAR_XID_CONTINUE) != 0; }));
     }},
    {"startswith", [](const Value& self, const Arguments& a) { return Value(starts_or_ends(self, a, true)); }},
    {"endswith", [](const Value& self, const Arguments& a) { return Value(starts_or_ends(self, a, false)); }},
    {"find", [](const Value& self, const Arguments& a) { return Value(find_text(self, a, false)); }},
    {"rfind", [](const Value& self, const Arguments& a) { return Value(find_text(self, a, true)); }},
    {"upper", [](const Value& self, const Arguments&) { return Value(to_upper(self.text())); }},
    {"lower", [](const Value& self, const Arguments&) { return Value(to_lower(self.text())); }},
    {"title", [](const Value& self, const Arguments&) { return Value(to_title(self.text())); }},
    {"capitalize", [](const Value& self, const Arguments&) { return Value(capitalized(self.text())); }},
    {"replace",
     [](const Value& self, const Arguments& a) {
       const Parameters p("replace", a, {"old", "new", "count"});
       return Value(replace(self.text(), p.need(0).text(), p.need(1).text(), p[2] ? p[2]->integer() : -1));
     }},
    {"join",
     [](const Value& self, const Arguments& a) {
       const Parameters p("join", a, {"iterable"});
       std::string out;
       bool first = true;
       for (const Value& part : p.need(0).elements()) {
         if (!std::exchange(first, false)) out += self.text();
         out += part.text();
       }
       return Value(out);
     }},
    {"count",
     [](const Value& self, const Arguments& a) {
       const Parameters p("count", a, {"sub", "start", "end"});
       const std::string& what = p.need(0).text();
       int64_t skipped = 0, count = 0;
       const auto text = bounded(self.text(), p[1], p[2], skipped);
       if (what.empty()) return begins_beyond(self, p[1]) ? Value(0) : Value(characters_of(text).size() + 1);
       for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
       return Value(count);
     }},
    {"removeprefix",
     [](const Value& self, const Arguments& a) {
       const std::string& affix = Parameters("removeprefix", a, {"prefix"}).need(0).text();
       return self.text().starts_with(affix) ? Value(self.text().substr(affix.size())) : self;
     }},
    {"removesuffix",
     [](const Value& self, const Arguments& a) {
       const std::string& affix = Parameters("removesuffix", a, {"suffix"}).need(0).text();
       return self.text().ends_with(affix) ? Value(self.text().substr(0, self.text().size() - affix.size())) : self;
     }},
    {"isdigit",
     [](const Value& self, const Arguments&) {
       return Value(all_characters(self, [](UChar32 c) {
         const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
         return type == U_NT_DECIMAL || type == U_NT_DIGIT;
       }));
     }},
    {"isdecimal",
     [](const Value& self, const Arguments&) {
       return Value(all_characters(
           self, [](UChar32 c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) == U_NT_DECIMAL; }));
     }},
    {"isnumeric",
     [](const Value& self, const Arguments&) {
       return Value(
           all_characters(self, [](UChar32 c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE; }));
     }},
    {"isalnum",
     [](const Value& self, const Arguments&) {
       return Value(all_characters(self, [](UChar32 c) {
         return u_isalpha(c) != 0 || u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
       }));
     }},
    {"isascii",
     [](const Value& self, const Arguments&) {
       return Value(self.text().empty() || all_characters(self, [](UChar32 c) { return c < 0x80; }));
     }},
    {"islower", [](const Value& self, const Arguments&) { return Value(is_all_lower(self.text())); }},
    {"isupper", [](const Value& self, const Arguments&) { return Value(is_all_upper(self.text())); }},
    {"isalpha",
     [](const Value& self, const Arguments&) {
       return Value(all_characters(self, [](UChar32 c) { return u_isalpha(c) != 0; }));
     }},
    {"isspace",
     [](const Value& self, const Arguments&) {
       return Value(all_characters(self, [](UChar32 c) { return is_python_space(static_cast<char32_t>(c)); }));
     }},
};

Value pairs_of(const Value& self) {
  List pairs;
  for (const auto& [key, value] : self.dict()) pairs.push_back(Value::tuple({Value(key), value}));
  return Value::view(pairs, Value::View::kItems);
}

const std::pair<std::string_view, Method> kDictMethods[] = {
    {"items", [](const Value& self, const Arguments&) { return pairs_of(self); }},
    {"keys", [](const Value& self, const Arguments&) { return Value::view(self.elements(), Value::View::kKeys); }},
    {"values",
     [](const Value& self, const Arguments&) {
       List values;
       for (const auto& [key, value] : self.dict()) values.push_back(value);
       return Value::view(values, Value::View::kValues);
     }},
    {"get",
     [](const Value& self, const Arguments& a) {
       const Parameters p("get", a, {"key", "default"});
       const Value* found = p.need(0).is_string() ? self.find(p.need(0).text()) : nullptr;
       if (found) return *found;
       return p[1] ? *p[1] : Value(None{});
     }},
    {"copy", [](const Value& self, const Arguments&) { return self; }},
};

const std::pair<std::string_view, Method> kListMethods[] = {
    {"index",
     [](const Value& self, const Arguments& a) {
       const Parameters p("index", a, {"value"});
       for (size_t i = 0; i < self.list().size(); ++i) {
         if (self.list()[i].equals(p.need(0))) return Value(i);
       }
       throw TemplateError(p.need(0).repr() + " is not in list");
     }},
    {"count",
     [](const Value& self, const Arguments& a) {
       const Parameters p("count", a, {"value"});
       return Value(static_cast<int64_t>(std::count_if(self.list().begin(), self.list().end(),
                                                       [&](const Value& value) { return value.equals(p.need(0)); })));
     }},
    {"copy", [](const Value& self, const Arguments&) { return self; }},
};

const std::pair<std::string_view, Method> kFloatMethods[] = {
    {"is_integer",
     [](const Value& self, const Arguments&) { return Value(std::nearbyint(self.number()) == self.number()); }},
};

const std::pair<std::string_view, Method> kWholeMethods[] = {
    {"bit_length",
     [](const Value& self, const Arguments& a) {
       const Parameters none("bit_length", a, {});
       return Value(bit_length(self));
     }},
};

constexpr std::string_view kDictChangers[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChangers[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

}  // namespace

Value method(const Value& value, const std::string& name) {
  const auto find = [&](const auto& table) -> Value {
    for (const auto& [known, implementation] : table) {
      if (known == name) {
        return Value(
            Function([value, run = implementation](const Arguments& arguments) { return run(value, arguments); }));
      }
    }
    return Value::undefined(name);
  };
  const auto refuse = [&](const auto& changers) -> Value {
    for (const std::string_view changer : changers) {
      if (changer == name) {
        return Value(Function([name, type = value.type_name()](const Arguments&) -> Value {
          throw TemplateError(fmt::format("{}.{} would change a value in place, which templates may not", type, name));
        }));
      }
    }
    return Value::undefined(name);
  };
  Value found = Value::undefined(name);
  if (value.is_markup()) {
    found = find(kTextMethods);
    if (!found.is_undefined()) throw TemplateError(fmt::format("'{}' of a value marked safe is not supported", name));
    return found;
  }
  if (value.is_string()) found = find(kTextMethods);
  if (value.is_dict()) found = find(kDictMethods);
  if (value.is_list() && !value.is_view() && !value.is_once()) found = find(kListMethods);
  if (value.is_float()) found = find(kFloatMethods);
  if (value.is_int() || value.is_bool()) found = find(kWholeMethods);
  if (found.is_undefined() && value.is_dict()) found = refuse(kDictChangers);
  if (found.is_undefined() && value.is_plain_list()) found = refuse(kListChangers);
  if (found.is_undefined() && value.is_string()) {
    static constexpr std::string_view kMissing[] = {"encode", "maketrans", "translate"};
    if (std::find(std::begin(kMissing), std::end(kMissing), name) != std::end(kMissing)) {
      throw TemplateError(fmt::format("str.{} is not supported", name));
    }
  }
  // What Python has and is not here must not pass for undefined.
  static constexpr std::string_view kOfNumbers[] = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
      "is_integer",       "numerator", "real",       "to_bytes"};
  static constexpr std::string_view kOfRanges[] = {"start", "step", "stop"};
  const auto missing = [&](const auto& names) { return std::ranges::find(names, name) != std::end(names); };
  if (found.is_undefined() && ((value.is_number() && missing(kOfNumbers)) || (value.is_range() && missing(kOfRanges))))
    throw TemplateError(fmt::format("{}.{} is not supported", value.type_name(), name));
  return found;
}

}  // namespace tandem::model::jinja
