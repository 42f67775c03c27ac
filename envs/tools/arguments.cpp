#include "envs/tools/arguments.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

// As JSON Schema has it, 2.0 is an integer; where it is one of 64 bits, too.
bool is_whole(const Json& value) {
  if (!value.is_number() || value.is_number_integer()) return false;
  const double number = value.get<double>();
  return std::nearbyint(number) == number && std::abs(number) < 9e15;
}

std::string_view json_type(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer() || is_whole(value)) return "integer";
  if (value.is_number()) return "number";
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  return "null";
}

bool fits(std::string_view wanted, const Json& value) {
  const auto found = json_type(value);
  return found == wanted || (wanted == "number" && found == "integer");
}

std::string usage(std::string_view tool, const Json& schema) {
  std::string text(tool);
  text += '{';
  bool first = true;
  const auto& required = schema.at("required");
  for (const auto& [name, property] : schema.at("properties").items()) {
    if (!first) text += ", ";
    first = false;
    text += name;
    if (std::find(required.begin(), required.end(), Json(name)) == required.end()) text += '?';
  }
  return text + '}';
}

std::string wrong_members(const std::string& where, const Json& schema, const Json& object);

// `where` is the argument as a model would write it: "limit", "todos[0].status".
std::string wrong_value(const std::string& where, const Json& property, const Json& value) {
  const auto wanted = property.at("type").get<std::string>();
  if (!fits(wanted, value)) {
    return "argument \"" + where + "\" must be of type " + wanted + ", found " + std::string(json_type(value));
  }
  if (property.contains("enum")) {
    const auto& allowed = property.at("enum");
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      std::vector<std::string> names;
      for (const auto& item : allowed) names.push_back(item.get<std::string>());
      return "argument \"" + where + "\" must be one of " + join(names, ", ");
    }
  }
  if (property.contains("minimum") && value.get<double>() < property.at("minimum").get<double>()) {
    return "argument \"" + where + "\" must be at least " + property.at("minimum").dump();
  }
  if (property.contains("minItems") && value.size() < property.at("minItems").get<size_t>()) {
    return "argument \"" + where + "\" must have at least " + property.at("minItems").dump() + " items, found " +
           std::to_string(value.size());
  }
  if (property.contains("maxItems") && value.size() > property.at("maxItems").get<size_t>()) {
    return "argument \"" + where + "\" must have at most " + property.at("maxItems").dump() + " items, found " +
           std::to_string(value.size());
  }
  if (wanted == "array") {
    for (size_t i = 0; i < value.size(); ++i) {
      auto wrong = wrong_value(where + "[" + std::to_string(i) + "]", property.at("items"), value[i]);
      if (!wrong.empty()) return wrong;
    }
  }
  return wanted == "object" ? wrong_members(where + ".", property, value) : "";
}

// `where` stands before the names of the members: empty, or "todos[0].".
std::string wrong_members(const std::string& where, const Json& schema, const Json& object) {
  const auto& properties = schema.at("properties");
  std::vector<std::string> names;
  for (const auto& [name, property] : properties.items()) names.push_back(name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const auto& [name, value] : object.items()) {
    if (!properties.contains(name)) {
      return "there is no argument \"" + where + name + "\"" + did_you_mean(name, known);
    }
    if (auto wrong = wrong_value(where + name, properties.at(name), value); !wrong.empty()) return wrong;
  }
  for (const auto& name : schema.at("required")) {
    if (!object.contains(name.get<std::string>())) {
      return "argument \"" + where + name.get<std::string>() + "\" is missing";
    }
  }
  return "";
}

}  // namespace

Json with_integers(const Json& schema, const Json& arguments) {
  if (schema.value("type", "") == "integer")
    return is_whole(arguments) ? Json(static_cast<int64_t>(arguments.get<double>())) : arguments;
  if (arguments.is_object() && schema.contains("properties")) {
    Json fitting = Json::object();
    for (const auto& [name, value] : arguments.items()) {
      const auto& properties = schema.at("properties");
      fitting[name] = properties.contains(name) ? with_integers(properties.at(name), value) : value;
    }
    return fitting;
  }
  if (!arguments.is_array() || !schema.contains("items")) return arguments;
  Json fitting = Json::array();
  for (const auto& value : arguments) fitting.push_back(with_integers(schema.at("items"), value));
  return fitting;
}

std::string check_arguments(std::string_view tool, const Json& schema, const Json& arguments) {
  auto wrong = arguments.is_object() ? wrong_members("", schema, arguments) : "the arguments must be a JSON object";
  return wrong.empty() ? "" : wrong + (wrong.ends_with("?") ? " Use: " : ". Use: ") + usage(tool, schema);
}

}  // namespace tandem::envs
