#include "model/jinja/value.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/whole_number.h"

namespace tandem::model::jinja {

namespace {

uint16_t one_deeper(uint16_t deepest) {
  constexpr uint16_t kDeepest = 150;  // what is made is also taken apart, compared and printed by recursion
  if (deepest >= kDeepest) throw TemplateError("lists and mappings are nested too deep");
  return deepest + 1;
}

}  // namespace

Value::Value(List list) {
  uint16_t deepest = 0;
  for (const Value& value : list) deepest = std::max(deepest, value.depth_);
  depth_ = one_deeper(deepest);
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  uint16_t deepest = 0;
  for (const auto& [key, value] : dict) deepest = std::max(deepest, value.depth_);
  depth_ = one_deeper(deepest);
  data_ = std::make_shared<const Dict>(std::move(dict));
}

Value Value::undefined(std::string name) {
  Value value;
  value.data_ = Undefined{std::move(name)};
  return value;
}

Value Value::markup(std::string text) {
  Value value;
  value.data_ = std::make_shared<const Text>(Text{std::move(text), true});
  return value;
}

Value Value::of_kind(List list, ListKind kind) {
  Value value(std::move(list));
  value.list_kind_ = kind;
  return value;
}

Value Value::tuple(List list) { return of_kind(std::move(list), ListKind::kTuple); }

Value Value::view(List list, View view) {
  return of_kind(std::move(list), view == View::kKeys     ? ListKind::kKeys
                                  : view == View::kValues ? ListKind::kValues
                                                          : ListKind::kItems);
}

Value Value::group(Value grouper, List list) {
  return of_kind({std::move(grouper), Value(std::move(list))}, ListKind::kGroup);
}

Value Value::range(List list) { return of_kind(std::move(list), ListKind::kRange); }

Value Value::once(List list) {
  Value value(std::move(list));
  auto once = std::make_shared<Once>();
  once->assign(value.list().begin(), value.list().end());
  value.data_ = std::shared_ptr<const List>(std::move(once));
  value.list_kind_ = ListKind::kOnce;
  return value;
}

Value Value::whole_number(std::string digits) {
  constexpr size_t kAlwaysFits = 18, kNeverFits = 20;  // characters
  int64_t small = 0;
  if (digits.size() <= kAlwaysFits ||
      (digits.size() <= kNeverFits &&
       std::from_chars(digits.data(), digits.data() + digits.size(), small).ec == std::errc())) {
    std::from_chars(digits.data(), digits.data() + digits.size(), small);
    return small;
  }
  Value value;
  value.data_ = std::make_shared<const Digits>(Digits{std::move(digits)});
  return value;
}

Value Value::from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return whole_number(std::to_string(json.get<uint64_t>()));
      return json.get<int64_t>();
    case Json::value_t::number_digits:
      return whole_number(json.digits());
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.push_back(from_json(item));
      return list;
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.emplace_back(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) {
    switch (list_kind_) {
      case ListKind::kList:
        return "list";
      case ListKind::kTuple:
        return "tuple";
      case ListKind::kGroup:
        return "_GroupTuple";
      case ListKind::kKeys:
        return "dict_keys";
      case ListKind::kValues:
        return "dict_values";
      case ListKind::kItems:
        return "dict_items";
      case ListKind::kRange:
        return "range";
      case ListKind::kOnce:
        return "generator";
    }
  }
  if (is_dict()) return "dict";
  if (is_namespace()) return "Namespace";
  return "function";
}

namespace {

[[noreturn]] void wrong_type(const Value& value, const char* wanted) {
  if (value.is_undefined()) throw TemplateError(value.why() + " where " + wanted + " is needed");
  throw TemplateError(fmt::format("a value of type {} where {} is needed", value.type_name(), wanted));
}

}  // namespace

bool Value::truth() const {
  if (is_bool()) return std::get<bool>(data_);
  if (is_digits()) return true;
  if (is_int()) return std::get<int64_t>(data_) != 0;
  if (is_float()) return std::get<double>(data_) != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return is_once() || !list().empty();
  if (is_dict()) return !dict().empty();
  return is_function() || is_namespace();
}

int64_t Value::integer() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  if (!is_int()) wrong_type(*this, "a whole number");
  if (is_digits()) throw TemplateError("a whole number of more than 63 bits");
  return std::get<int64_t>(data_);
}

double Value::number() const {
  if (is_float()) return std::get<double>(data_);
  if (!is_number()) wrong_type(*this, "a number");
  if (is_digits()) {
    const double rounded = std::strtod(std::get<std::shared_ptr<const Digits>>(data_)->text.c_str(), nullptr);
    if (std::isinf(rounded)) throw TemplateError("int too large to convert to float");
    return rounded;
  }
  return static_cast<double>(integer());
}

const std::string& Value::text() const {
  if (!is_string()) wrong_type(*this, "a string");
  return std::get<std::shared_ptr<const Text>>(data_)->text;
}

const List& Value::list() const {
  if (!is_list()) wrong_type(*this, "a list");
  return *std::get<std::shared_ptr<const List>>(data_);
}

const Dict& Value::dict() const {
  if (!is_dict()) wrong_type(*this, "a mapping");
  return *std::get<std::shared_ptr<const Dict>>(data_);
}

Namespace& Value::fields() const {
  if (!is_namespace()) wrong_type(*this, "a namespace");
  return *std::get<std::shared_ptr<Namespace>>(data_);
}

const Function& Value::function() const {
  if (!is_function()) wrong_type(*this, "something callable");
  return *std::get<std::shared_ptr<const Function>>(data_);
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : dict()) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double magnitude = std::fabs(value);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, end.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string Value::str() const {
  if (is_string()) return text();
  if (is_undefined()) return {};
  return repr();
}

void check_size(const std::string& text) {
  if (text.size() > kLargestText) throw TemplateError("a text of more than 64 MiB");
}

namespace {

std::string repr_of_text(std::string_view text) {
  const bool use_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_character(text.substr(at));
    const char32_t c = step.character;
    const uint32_t mask = U_GET_GC_MASK(static_cast<UChar32>(c));
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c != ' ' && (mask & (U_GC_C_MASK | U_GC_Z_MASK))) {
      out += c < 0x100 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
                       : (c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                                      : fmt::format("\\U{:08x}", static_cast<uint32_t>(c)));
    } else {
      out += text.substr(at, step.length);
    }
    at += step.length;
  }
  return out + quote;
}

}  // namespace

std::string Value::why() const {
  const std::string& name = std::get<Undefined>(data_).name;
  if (name.empty()) return "an undefined value";
  return name.find("' has no ") != std::string::npos ? fmt::format("'{}'", name)
                                                     : fmt::format("'{}' is undefined", name);
}

std::string Value::repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return truth() ? "True" : "False";
  if (is_digits()) return std::get<std::shared_ptr<const Digits>>(data_)->text;
  if (is_int()) return std::to_string(integer());
  if (is_float()) return float_repr(number());
  if (is_string()) return is_markup() ? fmt::format("Markup({})", repr_of_text(text())) : repr_of_text(text());
  if (is_range() || is_once())
    throw TemplateError(fmt::format("the text of a {} is not supported; use |list", type_name()));
  if (is_list()) {
    std::string out = is_tuple() ? "(" : "[";
    for (size_t i = 0; i < list().size(); ++i) check_size(out.append(i ? ", " : "").append(list()[i].repr()));
    if (is_tuple() && list().size() == 1) out += ",";
    out += is_tuple() ? ")" : "]";
    return is_view() ? fmt::format("{}({})", type_name(), out) : out;
  }
  if (is_dict()) {
    std::string out = "{";
    for (const auto& [key, value] : dict()) {
      check_size(out.append(out.size() > 1 ? ", " : "").append(repr_of_text(key)).append(": ").append(value.repr()));
    }
    return out + "}";
  }
  throw TemplateError(fmt::format("a value of type {} has no text", type_name()));
}

List Value::elements() const {
  if (is_undefined()) return {};
  if (is_once()) {
    const Once& once = once_list();
    const size_t taken = std::exchange(once.taken, once.size());
    return List(once.begin() + static_cast<ptrdiff_t>(taken), once.end());
  }
  if (is_list()) return list();
  List result;
  if (is_dict()) {
    for (const auto& [key, value] : dict()) result.emplace_back(key);
  } else if (is_string()) {
    for (const auto character : characters_of(text())) result.emplace_back(character);
  } else {
    throw TemplateError(fmt::format("'{}' object is not iterable", type_name()));
  }
  return result;
}

const Value::Once& Value::once_list() const {
  const Once& once = static_cast<const Once&>(list());
  if (once.unknown)
    throw TemplateError("what is left of a generator that was gone through in part is not supported; use |list");
  return once;
}

Value Value::first() const {
  if (is_once()) {
    const Once& once = once_list();
    return once.taken < once.size() ? once[once.taken++] : undefined("No first item, sequence was empty.");
  }
  const List all = elements();
  return all.empty() ? undefined("No first item, sequence was empty.") : all.front();
}

void Value::leave_unknown() const {
  if (is_once()) static_cast<const Once&>(list()).unknown = true;
}

size_t Value::length() const {
  if (is_undefined()) return 0;
  if (is_list() && !is_once()) return list().size();
  if (is_dict()) return dict().size();
  if (is_string()) return characters_of(text()).size();
  throw TemplateError(fmt::format("object of type '{}' has no len()", type_name()));
}

namespace {

std::string repr_of_whole(const Value& value) { return value.is_bool() ? (value.truth() ? "1" : "0") : value.repr(); }

// Compares whole numbers without leading zeros.
bool less_digits(std::string_view a, std::string_view b) {
  const bool a_negative = a.starts_with('-'), b_negative = b.starts_with('-');
  if (a_negative != b_negative) return a_negative;
  if (a_negative) return less_digits(b.substr(1), a.substr(1));
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

bool Value::equals(const Value& other) const {
  int64_t budget = 1'000'000;
  return equals(other, budget);
}

bool Value::equals(const Value& other, int64_t& budget) const {
  if (--budget < 0) throw TemplateError("a comparison of more than a million values");
  if (is_number() && other.is_number()) {
    if (is_float() && other.is_float()) return number() == other.number();
    if (is_float()) return order_of_whole(other, number()) == 0;
    if (other.is_float()) return order_of_whole(*this, other.number()) == 0;
    if (is_digits() || other.is_digits()) return is_digits() && other.is_digits() && repr() == other.repr();
    return integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_string()) return text() == other.text();
  if (is_list()) {
    if ((is_once() || is_view()) && list_kind_ == other.list_kind_)
      throw TemplateError(fmt::format("comparing a {} is not supported; use |list", type_name()));
    return (list_kind_ == other.list_kind_ || (is_tuple() && other.is_tuple())) &&
           std::equal(list().begin(), list().end(), other.list().begin(), other.list().end(),
                      [&](const Value& a, const Value& b) { return a.equals(b, budget); });
  }
  if (is_dict()) {
    return dict().size() == other.dict().size() && std::all_of(dict().begin(), dict().end(), [&](const auto& item) {
             const Value* found = other.find(item.first);
             return found != nullptr && item.second.equals(*found, budget);
           });
  }
  return is_namespace() ? &fields() == &other.fields() : &function() == &other.function();
}

bool Value::less(const Value& other) const {
  int64_t budget = 1'000'000;
  return less(other, budget);
}

bool Value::less(const Value& other, int64_t& budget) const {
  if (--budget < 0) throw TemplateError("a comparison of more than a million values");
  if (is_number() && other.is_number()) {
    if (is_float() && other.is_float()) return number() < other.number();
    if (is_float()) return order_of_whole(other, number()) > 0;
    if (other.is_float()) return order_of_whole(*this, other.number()) < 0;
    if (is_digits() || other.is_digits()) return less_digits(repr_of_whole(*this), repr_of_whole(other));
    return integer() < other.integer();
  }
  if (is_string() && other.is_string()) return text() < other.text();
  if ((is_plain_list() && other.is_plain_list()) || (is_tuple() && other.is_tuple())) {
    // By the first that differ: those before them need no order of their own.
    const auto [mine, others] = std::mismatch(list().begin(), list().end(), other.list().begin(), other.list().end(),
                                              [&](const Value& a, const Value& b) { return a.equals(b, budget); });
    if (mine == list().end() || others == other.list().end()) return others != other.list().end();
    return mine->less(*others, budget);
  }
  throw TemplateError(
      fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(), other.type_name()));
}

bool Value::contains(const Value& element) const {
  if (is_string()) return text().find(element.text()) != std::string::npos;
  if (is_dict()) return element.is_string() && find(element.text()) != nullptr;
  if (is_once()) {  // up to the element
    const Once& once = once_list();
    while (once.taken < once.size()) {
      if (once[once.taken++].equals(element)) return true;
    }
    return false;
  }
  const List all = elements();
  return std::any_of(all.begin(), all.end(), [&](const Value& value) { return value.equals(element); });
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> result;
  for (size_t at = 0; at < text.size();) {
    result.push_back(text.substr(at, next_character(text.substr(at)).length));
    at += result.back().size();
  }
  return result;
}

std::string strip(std::string_view text, const Value* characters, bool left, bool right) {
  const auto all = characters_of(text);
  const auto goes = [&](std::string_view character) {
    if (characters == nullptr || characters->is_none()) return is_python_space(next_character(character).character);
    const auto set = characters_of(characters->text());
    return std::find(set.begin(), set.end(), character) != set.end();
  };
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end && goes(all[begin])) ++begin;
  while (right && begin < end && goes(all[end - 1])) --end;
  if (begin == end) return {};
  return {all[begin].data(), all[end - 1].data() + all[end - 1].size()};
}

void dict_set(Dict& dict, std::string key, Value value) {
  for (auto& item : dict) {
    if (item.first == key) {
      item.second = std::move(value);
      return;
    }
  }
  dict.emplace_back(std::move(key), std::move(value));
}

}  // namespace tandem::model::jinja
