#include "model/constraint/validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <set>

#include "base/utf8.h"
#include "model/constraint/decimal.h"
#include "model/constraint/formats.h"
#include "model/constraint/pattern.h"
#include "model/constraint/schema_facts.h"
#include "model/constraint/schema_form.h"

namespace tandem::model::constraint {

namespace {

constexpr size_t kMostErrors = 20, kMostSteps = 1'000'000;
constexpr int kMostDepth = 200;  // of schemas within each other, references included

std::u32string characters_of_text(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const auto step = next_character(text.substr(at));
    out += step.character;
    at += step.length;
  }
  return out;
}

std::string shortened(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() > 60) text = text.substr(0, 57) + "..";
  return text;
}

bool is_whole(const Json& number) {
  return number.is_number_integer() || number.is_number_digits() ||
         number.get<double>() == std::floor(number.get<double>());
}

using WideInteger = boost::multiprecision::cpp_int;

WideInteger whole_of_json(const Json& number) {
  if (number.is_number_digits()) return WideInteger(number.digits());
  if (number.is_number_unsigned()) return number.get<uint64_t>();
  return number.is_number_integer() ? WideInteger(number.get<int64_t>()) : WideInteger(number.get<double>());
}

// Exact for whole numbers; for others as Python's jsonschema, by the quotient of doubles.
bool is_multiple(const Json& value, const Json& of) {
  const double number = value.get<double>(), unit = of.get<double>();
  const bool exact_value = value.is_number_digits() || std::isfinite(number);
  const bool exact_unit = of.is_number_digits() || std::isfinite(unit);
  if (exact_value && exact_unit && is_whole(value) && is_whole(of))
    return whole_of_json(value) % whole_of_json(of) == 0;
  const double quotient = number / unit;
  return std::isfinite(quotient) && quotient == std::floor(quotient);
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  // Whether it is; the errors are kept where `report`.
  Result<bool> valid(const Json& schema, const Json& value, const std::string& place, bool report, int depth = 0) {
    if (++steps_ > kMostSteps) return fail(Status::exhausted("the schema is followed more than a million times over"));
    if (depth > kMostDepth) return fail(Status::invalid("a \"$ref\" of the schema leads back to itself"));
    if (schema.is_boolean()) return schema.get<bool>() || wrong(report, place, "nothing is allowed here");
    if (!schema.is_object()) return fail(Status::invalid("a schema is an object, true or false"));
    const Context at{schema, value, place, report, depth};
    bool all = true;
    for (const auto& [keyword, rule] : schema.items()) {
      const auto holds = judge(at, keyword, rule);
      if (!holds) return holds;
      all = all && *holds;
      if (!all && !report) return false;
    }
    return all;
  }

  std::vector<std::string> errors;

 private:
  struct Context {
    const Json &schema, &value;
    const std::string& place;
    bool report;
    int depth;
  };

  bool wrong(bool report, const std::string& place, std::string_view what) {
    if (report && errors.size() < kMostErrors)
      errors.push_back(fmt::format("{}: {}", place.empty() ? "the value" : place, what));
    return false;
  }
  bool wrong(const Context& at, std::string_view what) { return wrong(at.report, at.place, what); }

  Result<bool> below(const Context& at, const Json& schema) {
    return valid(schema, at.value, at.place, at.report, at.depth + 1);
  }
  Result<bool> silently(const Context& at, const Json& schema) {
    return valid(schema, at.value, at.place, false, at.depth + 1);
  }
  Result<bool> inside(const Context& at, const Json& schema, const std::string& key, const Json& value, bool report) {
    return valid(schema, value, fmt::format("{}/{}", at.place, key), report && at.report, at.depth + 1);
  }

  Result<bool> judge(const Context& at, const std::string& keyword, const Json& rule) {
    for (const std::string_view unheld : {"$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"})
      if (keyword == unheld && rule != Json(true))
        return fail(Status::invalid(fmt::format("\"{}\" of the schema is not implemented", keyword)));
    if (keyword == "type") return of_type(at, rule);
    if (keyword == "const")
      return canonical(at.value) == canonical(rule) || wrong(at, fmt::format("it is not {}", shortened(rule)));
    if (keyword == "enum") {
      const bool any = rule.is_array() && std::any_of(rule.begin(), rule.end(), [&](const Json& one) {
                         return canonical(one) == canonical(at.value);
                       });
      return any || wrong(at, fmt::format("{} is not one of {}", shortened(at.value), shortened(rule)));
    }
    if (keyword == "$ref") return by_reference(at, rule);
    if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf") return branches(at, keyword, rule);
    if (keyword == "not")
      return !TRY(silently(at, rule)) || wrong(at, fmt::format("it is what \"not\" excludes: {}", shortened(rule)));
    if (keyword == "if") {
      const char* const then = TRY(silently(at, rule)) ? "then" : "else";
      return at.schema.contains(then) ? below(at, at.schema[then]) : Result<bool>(true);
    }
    if (at.value.is_number()) return of_number(at, keyword, rule);
    if (at.value.is_string()) return of_text(at, keyword, rule);
    if (at.value.is_array()) return of_array(at, keyword, rule);
    if (at.value.is_object()) return of_object(at, keyword, rule);
    return true;
  }

  Result<bool> of_type(const Context& at, const Json& rule) {
    const Json& value = at.value;
    const auto is = [&](const Json& type) {
      if (type == "number") return value.is_number();
      if (type == "integer") return value.is_number() && is_whole(value);
      return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
             (type == "string" && value.is_string()) || (type == "array" && value.is_array()) ||
             (type == "object" && value.is_object());
    };
    const bool any = rule.is_array() ? std::any_of(rule.begin(), rule.end(), is) : is(rule);
    if (any || (value.is_null() && at.schema.value("nullable", Json()) == Json(true))) return true;
    const std::string types = rule.is_string() ? rule.get<std::string>() : dump_json(rule);
    return wrong(at, fmt::format("{} is not of the type {}", shortened(value), types));
  }

  Result<bool> by_reference(const Context& at, const Json& rule) {
    const std::string text = rule.is_string() ? rule.get<std::string>() : "";
    if (!text.starts_with('#'))
      return fail(Status::invalid(fmt::format("\"$ref\" is {}; only places of the same schema are read", rule.dump())));
    try {
      const Json::json_pointer pointer(text.substr(1));
      if (root_.contains(pointer)) return below(at, root_.at(pointer));
    } catch (const Json::exception&) {  // not a pointer
    }
    return fail(Status::invalid(fmt::format("\"$ref\" is \"{}\", which is not there", text)));
  }

  Result<bool> branches(const Context& at, const std::string& keyword, const Json& rule) {
    if (!rule.is_array()) return fail(Status::invalid(fmt::format("\"{}\" of the schema is a list", keyword)));
    size_t held = 0;
    for (const Json& branch : rule) held += TRY(keyword == "allOf" ? below(at, branch) : silently(at, branch)) ? 1 : 0;
    if (keyword == "allOf") return held == rule.size();
    if (keyword == "anyOf" ? held > 0 : held == 1) return true;
    return wrong(at, fmt::format("{} holds for {} of the {} branches of \"{}\"", shortened(at.value), held, rule.size(),
                                 keyword));
  }

  Result<bool> of_number(const Context& at, const std::string& keyword, const Json& rule) {
    const bool bound =
        keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum";
    if (bound && rule.is_number()) {
      const int side = TRY(Bound::of(at.value, false)).compare(TRY(Bound::of(rule, false)));
      const bool low = keyword == "minimum" || keyword == "exclusiveMinimum";
      const bool exclusive = keyword.starts_with("exclusive");
      const bool holds = exclusive ? (low ? side > 0 : side < 0) : (low ? side >= 0 : side <= 0);
      return holds || wrong(at, fmt::format("{} is not within \"{}\" {}", shortened(at.value), keyword, rule.dump()));
    }
    if (keyword == "multipleOf" && rule.is_number() && rule.get<double>() > 0) {
      return is_multiple(at.value, rule) ||
             wrong(at, fmt::format("{} is no multiple of {}", shortened(at.value), rule.dump()));
    }
    return true;
  }

  Result<bool> of_text(const Context& at, const std::string& keyword, const Json& rule) {
    const std::string& text = at.value.get_ref<const std::string&>();
    if ((keyword == "minLength" || keyword == "maxLength") && rule.is_number()) {
      const auto length = static_cast<double>(characters_of_text(text).size());
      const bool holds = keyword == "minLength" ? length >= rule.get<double>() : length <= rule.get<double>();
      return holds || wrong(at, fmt::format("{} characters are not within \"{}\" {}", length, keyword, rule.dump()));
    }
    if (keyword == "pattern" && rule.is_string()) {
      return TRY(matches_pattern(rule.get<std::string>(), text)) ||
             wrong(at, fmt::format("{} does not match the pattern {}", shortened(at.value), rule.dump()));
    }
    const auto formats = format_names();
    if (keyword == "format" && rule.is_string() &&
        std::find(formats.begin(), formats.end(), rule.get<std::string>()) != formats.end()) {
      const auto automaton = TRY(automata_.format(rule.get<std::string>()));
      return automaton->matches(characters_of_text(text)) ||
             wrong(at, fmt::format("{} is not of the format {}", shortened(at.value), rule.get<std::string>()));
    }
    return true;
  }

  Result<bool> of_array(const Context& at, const std::string& keyword, const Json& rule) {
    const Json& value = at.value;
    if ((keyword == "minItems" || keyword == "maxItems") && rule.is_number()) {
      const auto size = static_cast<double>(value.size());
      const bool holds = keyword == "minItems" ? size >= rule.get<double>() : size <= rule.get<double>();
      return holds || wrong(at, fmt::format("{} items are not within \"{}\" {}", size, keyword, rule.dump()));
    }
    if (keyword == "uniqueItems" && rule == Json(true)) {
      std::set<std::string> seen;
      for (const Json& item : value)
        if (!seen.insert(canonical(item)).second)
          return wrong(at, fmt::format("{} stands twice in it", shortened(item)));
    }
    if (keyword == "contains") {
      size_t held = 0;
      for (const Json& item : value) held += TRY(inside(at, rule, "-", item, false)) ? 1 : 0;
      const double least = at.schema.value("minContains", Json(1)).get<double>();
      const double most = at.schema.value("maxContains", Json(INFINITY)).get<double>();
      const auto count = static_cast<double>(held);
      return (count >= least && count <= most) || wrong(at, fmt::format("{} items are what \"contains\" says", held));
    }
    const bool list = keyword == "prefixItems" || (keyword == "items" && rule.is_array());
    const bool rest = (keyword == "items" && !rule.is_array()) || keyword == "additionalItems";
    if (!list && !rest) return true;
    const auto* const before = keyword == "items" ? "prefixItems" : "items";
    size_t begin = 0;
    if (keyword == "additionalItems" && !at.schema.contains("items")) return true;
    if (rest && at.schema.contains(before) && at.schema[before].is_array()) begin = at.schema[before].size();
    if (keyword == "additionalItems" && !at.schema["items"].is_array()) return true;
    bool all = true;
    for (size_t i = begin; i < (list ? std::min(rule.size(), value.size()) : value.size()); ++i)
      all = TRY(inside(at, list ? rule[i] : rule, std::to_string(i), value[i], true)) && all;
    return all;
  }

  Result<bool> of_object(const Context& at, const std::string& keyword, const Json& rule) {
    const Json& value = at.value;
    if ((keyword == "minProperties" || keyword == "maxProperties") && rule.is_number()) {
      const auto size = static_cast<double>(value.size());
      const bool holds = keyword == "minProperties" ? size >= rule.get<double>() : size <= rule.get<double>();
      return holds || wrong(at, fmt::format("{} members are not within \"{}\" {}", size, keyword, rule.dump()));
    }
    bool all = true;
    if (keyword == "required" && rule.is_array()) {
      for (const Json& name : rule)
        if (name.is_string() && !value.contains(name.get<std::string>()))
          all = wrong(at, fmt::format("\"{}\" is missing", name.get<std::string>()));
      return all;
    }
    if (keyword == "propertyNames") {
      for (const auto& [name, unused] : value.items()) all = TRY(inside(at, rule, name, Json(name), true)) && all;
      return all;
    }
    if ((keyword == "dependentRequired" || keyword == "dependentSchemas" || keyword == "dependencies") &&
        rule.is_object()) {
      for (const auto& [name, then] : rule.items()) {
        if (!value.contains(name)) continue;
        if (!then.is_array()) {
          all = TRY(below(at, then)) && all;
          continue;
        }
        for (const Json& other : then)
          if (other.is_string() && !value.contains(other.get<std::string>()))
            all = wrong(at, fmt::format("\"{}\" is missing beside \"{}\"", other.get<std::string>(), name));
      }
      return all;
    }
    if (keyword == "properties" && rule.is_object()) {
      for (const auto& [name, schema] : rule.items())
        if (value.contains(name)) all = TRY(inside(at, schema, name, value[name], true)) && all;
      return all;
    }
    if (keyword != "patternProperties" && keyword != "additionalProperties") return true;
    for (const auto& [name, member] : value.items()) {
      bool described = at.schema.contains("properties") && at.schema["properties"].contains(name);
      if (const auto patterns = at.schema.find("patternProperties"); patterns != at.schema.end()) {
        for (const auto& [pattern, schema] : patterns->items()) {
          if (!TRY(matches_pattern(pattern, name))) continue;
          described = true;
          if (keyword == "patternProperties") all = TRY(inside(at, schema, name, member, true)) && all;
        }
      }
      if (keyword == "patternProperties" || described) continue;
      if (rule == Json(false))
        all = wrong(at, fmt::format("\"{}\" is not allowed", name));
      else
        all = TRY(inside(at, rule, name, member, true)) && all;
    }
    return all;
  }

  Result<bool> matches_pattern(const std::string& pattern, std::string_view text) {
    return TRY(automata_.pattern(pattern))->matches(characters_of_text(text));
  }

  const Json& root_;
  TextAutomata automata_;
  size_t steps_ = 0;
};

}  // namespace

Result<std::vector<std::string>> schema_errors(const Json& schema, const Json& value) {
  TRY(check_schema_form(schema));
  Validator validator(schema);
  if (!TRY(validator.valid(schema, value, "", true)) && validator.errors.empty())
    validator.errors.emplace_back("the value: it is not valid");
  return std::move(validator.errors);
}

}  // namespace tandem::model::constraint
