// JSON Schema by its text, value by value, to have a second word on texts that no golden file has. It is checked
// against jsonschema's own verdicts below.
#pragma once

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/json.h"

namespace tandem::model::constraint {

class ReferenceValidator {
 public:
  explicit ReferenceValidator(const Json& root) : root_(root) {}
  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static size_t length(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static bool same(const Json& a, const Json& b) { return a.sorted() == b.sorted(); }
  static bool is_type(const std::string& type, const Json& value) {
    if (type == "integer")
      return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
    return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
           (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
           (type == "array" && value.is_array()) || (type == "object" && value.is_object());
  }

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, rule] : schema.items())
      if (!holds(schema, keyword, rule, value)) return false;
    return true;
  }

  bool holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    const auto branch = [&](const Json& s) { return valid(s, value); };
    if (keyword == "type") {
      if (rule.is_string()) return is_type(rule.get<std::string>(), value);
      return std::any_of(rule.begin(), rule.end(), [&](const Json& t) { return is_type(t.get<std::string>(), value); });
    }
    if (keyword == "enum") return std::any_of(rule.begin(), rule.end(), [&](const Json& v) { return same(v, value); });
    if (keyword == "const") return same(rule, value);
    if (keyword == "$ref") return valid(root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value);
    if (keyword == "allOf") return std::all_of(rule.begin(), rule.end(), branch);
    if (keyword == "anyOf") return std::any_of(rule.begin(), rule.end(), branch);
    if (keyword == "oneOf") return std::count_if(rule.begin(), rule.end(), branch) == 1;
    if (value.is_number()) return number_holds(keyword, rule, value.get<double>());
    if (value.is_string()) return string_holds(keyword, rule, value.get<std::string>());
    if (value.is_array()) return array_holds(schema, keyword, rule, value);
    return !value.is_object() || object_holds(schema, keyword, rule, value);
  }

  static bool number_holds(const std::string& keyword, const Json& rule, double number) {
    if (keyword == "minimum") return number >= rule.get<double>();
    if (keyword == "maximum") return number <= rule.get<double>();
    if (keyword == "exclusiveMinimum") return number > rule.get<double>();
    if (keyword == "exclusiveMaximum") return number < rule.get<double>();
    if (keyword == "multipleOf") return std::fmod(number, rule.get<double>()) == 0;
    return true;
  }

  static bool string_holds(const std::string& keyword, const Json& rule, const std::string& text) {
    if (keyword == "minLength") return length(text) >= rule.get<size_t>();
    if (keyword == "maxLength") return length(text) <= rule.get<size_t>();
    if (keyword == "pattern" && std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; }))
      return std::regex_search(text, std::regex(rule.get<std::string>()));
    return true;
  }

  bool array_holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    if (keyword == "minItems") return value.size() >= rule.get<size_t>();
    if (keyword == "maxItems") return value.size() <= rule.get<size_t>();
    const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (keyword == "prefixItems") {
      for (size_t i = 0; i < std::min(prefix, value.size()); ++i)
        if (!valid(rule[i], value[i])) return false;
    }
    if (keyword == "items") {
      for (size_t i = prefix; i < value.size(); ++i)
        if (!valid(rule, value[i])) return false;
    }
    return true;
  }

  bool object_holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    if (keyword == "minProperties") return value.size() >= rule.get<size_t>();
    if (keyword == "maxProperties") return value.size() <= rule.get<size_t>();
    if (keyword == "required")
      return std::all_of(rule.begin(), rule.end(), [&](const Json& k) { return value.contains(k.get<std::string>()); });
    for (const auto& [name, member] : value.items()) {
      const bool named = schema.contains("properties") && schema["properties"].contains(name);
      if (keyword == "properties" && named && !valid(rule[name], member)) return false;
      if (keyword == "additionalProperties" && !named && !valid(rule, member)) return false;
    }
    return true;
  }

  const Json& root_;
};

}  // namespace tandem::model::constraint
