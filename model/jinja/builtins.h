// Filters, tests, methods and operators of the template language, each as jinja2 and Python define it.
//
// Functions that change a value in place (list.append, dict.update) are refused, as in transformers' immutable sandbox.
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Filters and tests by name, for those that take the name of another (map, select).
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

// value.name: a method, else the item of that name, else undefined.
Value attribute(const Value& value, const std::string& name);
// value[key]: the item, else the method of that name, else undefined.
Value item(const Value& value, const Value& key);
// value[begin:end:step]; none where a bound is absent.
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);

Value round_number(const Value& value, const Arguments& arguments);
Value to_int(const Value& value, const Arguments& arguments);
Value to_float(const Value& value, const Arguments& arguments);

Value binary(std::string_view name, const Value& left, const Value& right);

// The method `name` of a string, list or dict; undefined where there is none.
Value method(const Value& value, const std::string& name);

// The largest text or list that an operation may make.
inline constexpr size_t kLargestText = 64 << 20;
inline constexpr size_t kLargestList = 1 << 20;

// Arguments by position or name.
class Parameters {
 public:
  // `names` in order; more arguments than names, and names that are not among them, are errors.
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names);
  // Null where it was not given.
  const Value* operator[](size_t index) const { return values_[index]; }
  const Value& need(size_t index) const;
  bool flag(size_t index, bool otherwise) const;
  std::string text(size_t index, std::string otherwise) const;

 private:
  std::string function_;
  std::vector<const char*> names_;
  std::vector<const Value*> values_;
};

}  // namespace tandem::model::jinja
