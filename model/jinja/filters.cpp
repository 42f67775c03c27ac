// Filters as jinja2 has them; `tojson` as transformers overrides it.
#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/casing.h"
#include "model/jinja/text_filters.h"
#include "model/jinja/text_format.h"

namespace tandem::model::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    throw TemplateError(
        fmt::format("{} takes {} arguments, {} were given", function, names_.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw TemplateError(fmt::format("{} has no argument '{}'", function, name));
    values_[found - names_.begin()] = &value;
  }
}

const Value& Parameters::need(size_t index) const {
  if (values_[index] == nullptr)
    throw TemplateError(fmt::format("{} needs the argument '{}'", function_, names_[index]));
  return *values_[index];
}

bool Parameters::flag(size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : values_[index]->truth();
}

std::string Parameters::text(size_t index, std::string otherwise) const {
  return values_[index] == nullptr ? std::move(otherwise) : values_[index]->str();
}

namespace {

using Filter = Value (*)(const Value& value, const Arguments& arguments);

// "a.b.0" of a value, as the attribute arguments of filters mean it.
Value follow(Value value, const Value& path) {
  if (!path.is_string()) return item(value, path);  // mostly a number
  std::string_view rest = path.text();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    const bool number =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = item(value, number && name.size() < 10 ? Value(std::stoi(name)) : Value(name));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value text_method(const Value& value, const char* name, const Arguments& arguments = {}) {
  return method(Value(value.str()), name).function()(arguments);
}

std::string lower_key(const Value& value) { return value.str().empty() ? "" : text_method(value, "lower").text(); }

// Order and equality of filters that ignore case unless told otherwise.
Value case_key(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(lower_key(value)) : value;
}

// The elements of a generator: jinja2 takes them one by one where the result is gone through.
List elements_later(const Value& value) {
  List list = value.elements();
  value.leave_unknown();
  return list;
}

Value sort(const Value& value, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  // Several attributes stand with commas between, and each is looked at in turn.
  List paths;
  if (p[2] && p[2]->is_string())
    for (const auto path : split(p[2]->text(), ',')) paths.emplace_back(std::string(path));
  else if (p[2] && !p[2]->is_none())
    paths.push_back(*p[2]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& element : value.elements()) {
    List key;
    for (const Value& path : paths) key.push_back(case_key(follow(element, path), p.flag(1, false)));
    if (paths.empty()) key.push_back(case_key(element, p.flag(1, false)));
    keyed.emplace_back(std::move(key), element);
  }
  const bool reverse = p.flag(0, false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? b.first.less(a.first) : a.first.less(b.first);
  });
  List sorted;
  for (auto& [key, element] : keyed) sorted.push_back(std::move(element));
  return sorted;
}

Value dictsort(const Value& value, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const bool by_value = p.text(1, "key") == "value";
  List pairs;
  for (const auto& [name, inside] : value.dict()) pairs.push_back(Value::tuple({Value(name), inside}));
  const auto key = [&](const Value& pair) { return case_key(pair.list()[by_value ? 1 : 0], p.flag(0, false)); };
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Value& a, const Value& b) {
    return p.flag(2, false) ? key(b).less(key(a)) : key(a).less(key(b));
  });
  return pairs;
}

// Runs of what Python's \w is.
Value count_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (const auto character : characters_of(text)) {
    const auto c = static_cast<UChar32>(next_character(character).character);
    const bool of_word = c == '_' || (U_GET_GC_MASK(c) & (U_GC_L_MASK | U_GC_N_MASK)) != 0;
    if (of_word && !inside) ++words;
    inside = of_word;
  }
  return words;
}

// select, reject, selectattr, rejectattr.
Value select(const Value& value, Arguments arguments, bool by_attribute, bool wanted) {
  Value path;
  if (by_attribute) {
    if (arguments.positional.empty()) throw TemplateError("Missing parameter for attribute name");
    path = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  std::string test;
  if (!arguments.positional.empty()) {
    test = arguments.positional[0].text();
    arguments.positional.erase(arguments.positional.begin());
    if (!is_test(test)) throw TemplateError(fmt::format("test '{}' is not supported", test));
  }
  List kept;
  for (const Value& element : elements_later(value)) {
    const Value looked_at = by_attribute ? follow(element, path) : element;
    if ((test.empty() ? looked_at.truth() : apply_test(test, looked_at, arguments)) == wanted) kept.push_back(element);
  }
  return Value::once(std::move(kept));
}

Value map(const Value& value, Arguments arguments) {
  List result;
  if (arguments.positional.empty()) {
    const Parameters p("map", arguments, {"attribute", "default"});
    for (const Value& element : elements_later(value)) {
      Value found = follow(element, p.need(0));
      result.push_back(found.is_undefined() && p[1] && !p[1]->is_none() ? *p[1] : found);
    }
    return Value::once(std::move(result));
  }
  const std::string name = arguments.positional[0].text();
  if (!is_filter(name)) throw TemplateError(fmt::format("filter '{}' is not supported", name));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& element : elements_later(value)) result.push_back(apply_filter(name, element, arguments));
  return Value::once(std::move(result));
}

// jinja2's check, which keeps the keys in a set.
void check_hashable(const Value& key) {
  if (key.is_plain_list() || key.is_dict()) throw TemplateError(fmt::format("unhashable type: '{}'", key.type_name()));
  if (!key.is_tuple()) return;
  for (const Value& element : key.list()) check_hashable(element);
}

Value unique(const Value& value, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  List result;
  List keys;
  for (const Value& element : elements_later(value)) {
    const Value key = case_key(p[1] && !p[1]->is_none() ? follow(element, *p[1]) : element, p.flag(0, false));
    check_hashable(key);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& seen) { return seen.equals(key); })) continue;
    keys.push_back(key);
    result.push_back(element);
  }
  return Value::once(std::move(result));
}

Value extreme(const Value& value, const Arguments& arguments, bool largest) {
  const Parameters p(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const List list = value.elements();
  if (list.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& element) {
    return case_key(p[1] ? follow(element, *p[1]) : element, p.flag(0, false));
  };
  const auto less = [&](const Value& a, const Value& b) { return largest ? key(b).less(key(a)) : key(a).less(key(b)); };
  return *std::min_element(list.begin(), list.end(), less);
}

Value indent(const Value& value, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  if (p[0] && p[0]->is_int() && (p[0]->integer() < 0 || p[0]->integer() > 1000))
    throw TemplateError("indent of that width");
  const std::string margin = p[0] && p[0]->is_string() ? p[0]->text() : std::string(p[0] ? p[0]->integer() : 4, ' ');
  const List lines = text_method(Value(value.text() + "\n"), "splitlines").list();
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool indented = i == 0 ? p.flag(1, false) : (p.flag(2, false) || !lines[i].text().empty());
    out += (i ? "\n" : "") + (indented ? margin : std::string()) + lines[i].text();
    check_size(out);
  }
  return out;
}

Value to_json(const Value& value, const Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  if (p[1] && !p[1]->is_none()) {
    const int64_t width = p[1]->integer();
    if (width < 0 || width > 100) throw TemplateError("tojson with an indent of that width");
    style.indent = static_cast<int>(width);
    style.item_separator = ",";
  }
  if (p[2] && !p[2]->is_none()) {
    if (p[2]->list().size() != 2) throw TemplateError("tojson: separators is not a pair");
    style.item_separator = p[2]->list()[0].text();
    style.key_separator = p[2]->list()[1].text();
  }
  style.sort_keys = p.flag(3, false);
  return to_json_text(value, style);
}

Value join(const Value& value, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  std::string out;
  bool first = true;
  for (const Value& element : value.elements()) {
    if (!std::exchange(first, false)) out += p.text(0, "");
    out += (p[1] && !p[1]->is_none() ? follow(element, *p[1]) : element).str();
    if (out.size() > kLargestText) throw TemplateError("a text of more than 64 MiB");
  }
  return out;
}

Value sum(const Value& value, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  Value total = p[1] ? *p[1] : Value(0);
  if (total.is_string()) throw TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& element : value.elements()) {
    total = binary("+", total, p[0] && !p[0]->is_none() ? follow(element, *p[0]) : element);
  }
  return total;
}

Value reverse(const Value& value, const Arguments&) {
  List list = value.elements();
  std::reverse(list.begin(), list.end());
  if (!value.is_string()) return value.is_once() ? Value(std::move(list)) : Value::once(std::move(list));
  std::string text;
  for (const Value& character : list) text += character.text();
  return text;
}

Value group_by(const Value& value, const Arguments& arguments) {
  const Parameters p("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const bool sensitive = p.flag(2, false);
  struct Keyed {
    Value key, grouper, element;
  };
  std::vector<Keyed> all;
  for (const Value& element : value.elements()) {
    Value found = follow(element, p.need(0));
    if (found.is_undefined() && p[1]) found = *p[1];
    all.push_back({case_key(found, sensitive), found, element});
  }
  std::ranges::stable_sort(
      all, [](const Value& a, const Value& b) { return a.less(b); }, &Keyed::key);
  List groups;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    List group;
    while (end < all.size() && all[end].key.equals(all[begin].key)) group.push_back(all[end++].element);
    groups.push_back(Value::group(all[begin].grouper, std::move(group)));
  }
  return groups;
}

// So many lists of nearly equal length, the longer ones first.
Value slices(const Value& value, const Arguments& arguments) {
  const Parameters p("slice", arguments, {"slices", "fill_with"});
  const List all = elements_later(value);
  const int64_t count = p.need(0).integer();
  if (count < 1) throw TemplateError("slices of a count below one are not supported");
  if (count > static_cast<int64_t>(kLargestList)) throw TemplateError("a list of more than 2^20 elements");
  const auto size = static_cast<int64_t>(all.size());
  const bool fills = p[1] && !p[1]->is_none();
  List result;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool longer = i < size % count;
    const int64_t end = at + size / count + (longer ? 1 : 0);
    List part(all.begin() + at, all.begin() + end);
    if (fills && !longer) part.push_back(*p[1]);
    result.emplace_back(std::move(part));
    at = end;
  }
  return Value::once(std::move(result));
}

const std::pair<std::string_view, Filter> kFilters[] = {
    {"abs",
     [](const Value& v, const Arguments&) {
       return v.is_float()       ? Value(std::fabs(v.number()))
              : v.less(Value(0)) ? binary("-", Value(0), v)
                                 : binary("+", v, Value(0));
     }},
    {"attr",
     [](const Value& v, const Arguments& a) {
       const std::string name = Parameters("attr", a, {"name"}).need(0).str();
       // Never an item of that name.
       return v.is_dict() ? method(v, name) : attribute(v, name);
     }},
    {"batch",
     [](const Value& v, const Arguments& a) {
       const Parameters p("batch", a, {"linecount", "fill_with"});
       const int64_t most = p.need(0).integer();
       if (most < 1) throw TemplateError("batches of less than one element are not supported");
       List batches, batch;
       const auto end_batch = [&] { batches.emplace_back(std::exchange(batch, {})); };
       for (const Value& element : elements_later(v)) {
         if (static_cast<int64_t>(batch.size()) == most) end_batch();
         batch.push_back(element);
       }
       const bool fills = p[1] && !p[1]->is_none();
       if (fills && most > static_cast<int64_t>(kLargestList)) throw TemplateError("a list of more than 2^20 elements");
       while (fills && !batch.empty() && static_cast<int64_t>(batch.size()) < most) batch.push_back(*p[1]);
       if (!batch.empty()) end_batch();
       return Value::once(std::move(batches));
     }},
    {"capitalize", [](const Value& v, const Arguments&) { return text_method(v, "capitalize"); }},
    {"count", [](const Value& v, const Arguments&) { return Value(v.length()); }},
    {"center",
     [](const Value& v, const Arguments& a) {
       const Parameters p("center", a, {"width"});
       return text_method(v, "center", {{p[0] ? *p[0] : Value(80)}, {}});
     }},
    {"d", nullptr},
    {"default",
     [](const Value& v, const Arguments& a) {
       const Parameters p("default", a, {"default_value", "boolean"});
       const bool missing = v.is_undefined() || (p.flag(1, false) && !v.truth());
       return missing ? (p[0] ? *p[0] : Value("")) : v;
     }},
    {"dictsort", dictsort},
    {"e", nullptr},
    {"escape",
     [](const Value& v, const Arguments&) { return v.is_markup() ? v : Value::markup(escape_html(v.str())); }},
    {"filesizeformat", file_size},
    {"first", [](const Value& v, const Arguments&) { return v.first(); }},
    {"float", to_float},
    {"format",
     [](const Value& v, const Arguments& a) {
       if (a.named.empty()) return Value(format_percent(v.str(), Value::tuple(a.positional)));
       if (!a.positional.empty()) throw TemplateError("can't handle positional and keyword arguments at the same time");
       return Value(format_percent(v.str(), Value(a.named)));
     }},
    {"forceescape", force_escape},
    {"groupby", group_by},
    {"indent", indent},
    {"int", to_int},
    {"items",
     [](const Value& v, const Arguments&) {
       if (v.is_undefined()) return Value::once({});
       return Value::once(method(v, "items").function()({}).elements());
     }},
    {"join", join},
    {"last",
     [](const Value& v, const Arguments&) {
       if (v.is_once()) throw TemplateError("'generator' object is not reversible");
       const List list = v.elements();
       return list.empty() ? Value::undefined("No last item, sequence was empty.") : list.back();
     }},
    {"length", [](const Value& v, const Arguments&) { return Value(v.length()); }},
    {"list", [](const Value& v, const Arguments&) { return Value(v.elements()); }},
    {"lower", [](const Value& v, const Arguments&) { return text_method(v, "lower"); }},
    {"map", [](const Value& v, const Arguments& a) { return map(v, a); }},
    {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
    {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
    {"pprint", pretty},
    {"reject", [](const Value& v, const Arguments& a) { return select(v, a, false, false); }},
    {"rejectattr", [](const Value& v, const Arguments& a) { return select(v, a, true, false); }},
    {"replace",
     [](const Value& v, const Arguments& a) {
       const Parameters p("replace", a, {"old", "new", "count"});
       Arguments method_arguments{{p.need(0), p.need(1)}, {}};
       if (p[2] && !p[2]->is_none()) method_arguments.positional.push_back(*p[2]);
       return text_method(v, "replace", method_arguments);
     }},
    {"reverse", reverse},
    {"round", round_number},
    {"safe", [](const Value& v, const Arguments&) { return Value::markup(v.str()); }},
    {"select", [](const Value& v, const Arguments& a) { return select(v, a, false, true); }},
    {"selectattr", [](const Value& v, const Arguments& a) { return select(v, a, true, true); }},
    {"slice", slices},
    {"sort", sort},
    {"string", [](const Value& v, const Arguments&) { return v.is_string() ? v : Value(v.str()); }},
    {"striptags", strip_tags},
    {"sum", sum},
    {"title", [](const Value& v, const Arguments&) { return Value(titled_words(v.str())); }},
    {"tojson", to_json},
    {"trim",
     [](const Value& v, const Arguments& a) {
       const Parameters p("trim", a, {"chars"});
       auto text = strip(v.str(), p[0], true, true);
       return v.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
     }},
    {"truncate", truncate},
    {"unique", unique},
    {"upper", [](const Value& v, const Arguments&) { return text_method(v, "upper"); }},
    {"urlencode", url_encode},
    {"wordcount", [](const Value& v, const Arguments&) { return count_words(v.str()); }},
    {"xmlattr", xml_attributes},
};

const std::pair<std::string_view, Filter>* filter_named(std::string_view name) {
  const auto* const found = std::ranges::find(kFilters, name, &std::pair<std::string_view, Filter>::first);
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace

bool is_filter(std::string_view name) { return filter_named(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  if (name == "d") name = "default";
  if (name == "e") name = "escape";
  const auto* const found = filter_named(name);
  if (found == nullptr) throw TemplateError(fmt::format("filter '{}' is not supported", name));
  // Those that read no arguments.
  static constexpr std::string_view kBare[] = {
      "abs",   "capitalize", "count",   "escape", "first",  "forceescape", "items", "last",  "length",    "list",
      "lower", "pprint",     "reverse", "safe",   "string", "striptags",   "title", "upper", "urlencode", "wordcount"};
  if (std::ranges::find(kBare, name) != std::end(kBare)) Parameters(name, arguments, {});
  return found->second(value, arguments);
}

}  // namespace tandem::model::jinja
