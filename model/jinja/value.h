// Values of the template language: Python's, as far as chat templates see them.
//
// Copies are cheap: strings, lists and dicts are shared and never changed once they are made, as in transformers'
// immutable sandbox; only a namespace can be written to.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace tandem::model::jinja {

// Thrown inside the interpreter only; becomes a Status where it leaves.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in order of insertion, keys once
using Namespace = std::map<std::string, Value, std::less<>>;

struct Arguments {
  List positional;
  Dict named;
};
using Function = std::function<Value(const Arguments&)>;

// A whole number beyond 63 bits; model/jinja/whole_number.h computes with it.
struct Digits {
  std::string text;  // a minus or none, digits, no leading zeros
};

struct Undefined {
  std::string name;  // what was looked for, for the message
};
struct None {};
struct Text {
  std::string text;
  bool markup = false;  // went through `safe`; adding to it escapes
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const Text>(Text{std::move(text)})) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List list);  // TemplateError where lists and dicts would be nested too deep
  Value(Dict dict);
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}
  Value(std::shared_ptr<Namespace> fields) : data_(std::move(fields)) {}

  static Value undefined(std::string name);
  static Value markup(std::string text);
  static Value tuple(List list);
  enum class View : uint8_t { kKeys, kValues, kItems };
  static Value view(List list, View view);  // what a dict's keys, values and items give
  static Value range(List list);            // of numbers
  // A result of map, select and the like: it can be iterated once, and counts as true.
  static Value once(List list);
  // A result of groupby: a tuple of two, whose elements are also `grouper` and `list`.
  static Value group(Value grouper, List list);
  static Value from_json(const Json& json);
  static Value whole_number(std::string digits);  // of any size: a minus or none, digits, no leading zeros

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_) || is_digits(); }
  bool is_digits() const { return std::holds_alternative<std::shared_ptr<const Digits>>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }  // or a tuple
  bool is_tuple() const { return is_list() && (list_kind_ == ListKind::kTuple || is_group()); }
  bool is_group() const { return is_list() && list_kind_ == ListKind::kGroup; }
  bool is_view() const {
    return is_list() &&
           (list_kind_ == ListKind::kKeys || list_kind_ == ListKind::kValues || list_kind_ == ListKind::kItems);
  }
  bool is_range() const { return is_list() && list_kind_ == ListKind::kRange; }
  bool is_once() const { return is_list() && list_kind_ == ListKind::kOnce; }
  bool is_plain_list() const { return is_list() && list_kind_ == ListKind::kList; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_function() const { return std::holds_alternative<std::shared_ptr<const Function>>(data_); }
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Namespace>>(data_); }
  bool is_markup() const { return is_string() && std::get<std::shared_ptr<const Text>>(data_)->markup; }

  bool truth() const;
  int64_t integer() const;  // of a bool or an int; TemplateError otherwise, and beyond 63 bits
  double number() const;
  const std::string& text() const;
  const List& list() const;
  const Dict& dict() const;
  Namespace& fields() const;
  const Function& function() const;
  const Value* find(std::string_view key) const;  // in a dict; null where it is not

  std::string type_name() const;  // Python's: "str", "dict"
  std::string str() const;        // Python's str()
  std::string repr() const;       // Python's repr()

  std::string why() const;  // of an undefined value: what is missing

  // Items for a loop: elements, keys, characters; none for an undefined value and for an exhausted iterator.
  // TemplateError where only jinja2 knows the remaining items.
  List elements() const;
  // The first of them, which alone is taken; undefined where there is none.
  Value first() const;
  // For what jinja2 computes where it is needed and not here, and for a loop that was left: what is left of elements
  // that can be gone through once is not known from here on.
  void leave_unknown() const;
  size_t length() const;

  bool equals(const Value& other) const;
  bool less(const Value& other) const;        // TemplateError where Python has no order
  bool contains(const Value& element) const;  // element in this

 private:
  bool equals(const Value& other, int64_t& budget) const;
  bool less(const Value& other, int64_t& budget) const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Function>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Digits>>
      data_;
  // Elements that can be gone through once. Whoever copies the value shares that.
  struct Once : List {
    mutable size_t taken = 0;
    mutable bool unknown = false;  // how many were
  };
  enum class ListKind : uint8_t { kList, kTuple, kGroup, kKeys, kValues, kItems, kRange, kOnce };
  const Once& once_list() const;
  static Value of_kind(List list, ListKind kind);
  ListKind list_kind_ = ListKind::kList;
  uint16_t depth_ = 0;  // of lists and dicts within each other
};

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // -1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Python's json.dumps.
std::string to_json_text(const Value& value, const JsonStyle& style);

// TemplateError where it is too large: a list may hold one and the same list many times over, and so stand for a text
// that fits nowhere.
void check_size(const std::string& text);
std::string float_repr(double value);
// Python's str.isspace of one character.
bool is_python_space(char32_t character);
// The characters of a UTF-8 text, each as its bytes.
std::vector<std::string_view> characters_of(std::string_view text);
std::string strip(std::string_view text, const Value* characters, bool left, bool right);
void dict_set(Dict& dict, std::string key, Value value);

}  // namespace tandem::model::jinja
