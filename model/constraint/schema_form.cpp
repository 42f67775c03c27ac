#include "model/constraint/schema_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::model::constraint {

namespace {

bool is_list_of_names(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
}

bool is_count(const Json& value) {
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  return number >= 0 && number == std::floor(number);
}

bool is_type(const Json& value) {
  static constexpr std::array<std::string_view, 7> kNames = {"null",   "boolean", "integer", "number",
                                                             "string", "array",   "object"};
  if (value.is_array()) return std::all_of(value.begin(), value.end(), is_type);
  return value.is_string() && std::find(kNames.begin(), kNames.end(), value.get<std::string>()) != kNames.end();
}

struct Form {
  std::string_view keyword;
  bool (*holds)(const Json& value);
  std::string_view wanted;
};
constexpr auto kIsNumber = [](const Json& value) { return value.is_number(); };
constexpr auto kIsText = [](const Json& value) { return value.is_string(); };
constexpr auto kIsBool = [](const Json& value) { return value.is_boolean(); };
constexpr auto kIsList = [](const Json& value) { return value.is_array(); };
constexpr auto kIsObject = [](const Json& value) { return value.is_object(); };
constexpr std::string_view kCount = "a whole number from 0 on", kSchemasByName = "an object of schemas";

const std::array kForms = {
    Form{"type", is_type, "one of null, boolean, integer, number, string, array, object, or a list of them"},
    Form{"enum", kIsList, "a list of values"},
    Form{"$ref", kIsText, "a text"},
    Form{"minimum", kIsNumber, "a number"},
    Form{"maximum", kIsNumber, "a number"},
    Form{"exclusiveMinimum", kIsNumber, "a number"},
    Form{"exclusiveMaximum", kIsNumber, "a number"},
    Form{"multipleOf", [](const Json& value) { return value.is_number() && value.get<double>() > 0; },
         "a number above 0"},
    Form{"minLength", is_count, kCount},
    Form{"maxLength", is_count, kCount},
    Form{"minItems", is_count, kCount},
    Form{"maxItems", is_count, kCount},
    Form{"minContains", is_count, kCount},
    Form{"maxContains", is_count, kCount},
    Form{"minProperties", is_count, kCount},
    Form{"maxProperties", is_count, kCount},
    Form{"pattern", kIsText, "a text"},
    Form{"format", kIsText, "a text"},
    Form{"uniqueItems", kIsBool, "true or false"},
    Form{"required", is_list_of_names, "a list of names"},
    Form{"dependentRequired",
         [](const Json& value) {
           return value.is_object() && std::all_of(value.begin(), value.end(), is_list_of_names);
         },
         "an object of lists of names"},
    Form{"properties", kIsObject, kSchemasByName},
    Form{"patternProperties", kIsObject, kSchemasByName},
    Form{"dependentSchemas", kIsObject, kSchemasByName},
    Form{"dependencies", kIsObject, "an object of schemas and lists of names"},
    Form{"prefixItems", kIsList, "a list of schemas"},
    Form{"allOf", kIsList, "a list of schemas"},
    Form{"anyOf", kIsList, "a list of schemas"},
    Form{"oneOf", kIsList, "a list of schemas"},
};

enum class Holds : uint8_t { kNothing, kSchema, kSchemas };

// What a keyword holds that is judged by.
Holds held_by(std::string_view keyword, const Json& value) {
  static constexpr std::array<std::string_view, 8> kOne = {
      "additionalProperties", "propertyNames", "contains", "not", "additionalItems", "if", "then", "else"};
  static constexpr std::array<std::string_view, 8> kMany = {
      "properties", "patternProperties", "dependentSchemas", "dependencies", "prefixItems", "allOf", "anyOf", "oneOf"};
  if (keyword == "items") return value.is_array() ? Holds::kSchemas : Holds::kSchema;
  if (std::find(kOne.begin(), kOne.end(), keyword) != kOne.end()) return Holds::kSchema;
  return std::find(kMany.begin(), kMany.end(), keyword) != kMany.end() ? Holds::kSchemas : Holds::kNothing;
}

class FormCheck {
 public:
  explicit FormCheck(const Json& root) : root_(root) { open(root, ""); }

  Status run() {
    while (!open_.empty()) {
      const auto [schema, place] = std::move(open_.back());
      open_.pop_back();
      TRY(check(*schema, place));
    }
    return {};
  }

 private:
  void open(const Json& schema, std::string place) {
    if (seen_.insert(&schema).second) open_.emplace_back(&schema, std::move(place));
  }

  Status check(const Json& schema, const std::string& place) {
    const auto wrong = [&](std::string_view what) {
      return Status::invalid(fmt::format("the schema at #{}: {}", place, what));
    };
    if (schema.is_boolean()) return {};
    if (!schema.is_object()) return wrong("a schema is an object, true or false");
    for (const auto& [keyword, value] : schema.items()) {
      for (const Form& form : kForms) {
        if (keyword != form.keyword || form.holds(value)) continue;
        Status status = wrong(fmt::format("\"{}\" is {}", keyword, form.wanted));
        if (!keyword.starts_with("exclusive") || !value.is_boolean()) return status;
        return std::move(status).hint("a bool is the notation of draft 4; today's has the bound itself");
      }
      const Holds held = held_by(keyword, value);
      if (held == Holds::kSchema) open(value, fmt::format("{}/{}", place, keyword));
      if (held == Holds::kSchemas && value.is_array()) {
        for (size_t i = 0; i < value.size(); ++i) open(value[i], fmt::format("{}/{}/{}", place, keyword, i));
      } else if (held == Holds::kSchemas) {
        for (const auto& [name, member] : value.items()) {
          if (keyword == "dependencies" && is_list_of_names(member)) continue;
          open(member, fmt::format("{}/{}/{}", place, keyword, name));
        }
      }
      if (keyword == "$ref") follow(value.get_ref<const std::string&>());
    }
    return {};
  }

  // A reference that leads nowhere is told where a value is judged by it.
  void follow(const std::string& reference) {
    if (!reference.starts_with('#')) return;
    try {
      const Json::json_pointer pointer(reference.substr(1));
      if (root_.contains(pointer)) open(root_.at(pointer), reference.substr(1));
    } catch (const Json::exception&) {  // not a pointer
    }
  }

  const Json& root_;
  std::vector<std::pair<const Json*, std::string>> open_;
  std::set<const Json*> seen_;
};

}  // namespace

Status check_schema_form(const Json& schema) { return FormCheck(schema).run(); }

}  // namespace tandem::model::constraint
