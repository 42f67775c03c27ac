#include "envs/tools/arguments.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

std::string_view json_type(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer()) return "integer";
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

std::string one_argument(const std::string& name, const Json& property, const Json& value) {
  const auto wanted = property.at("type").get<std::string>();
  if (!fits(wanted, value)) {
    return "argument \"" + name + "\" must be of type " + wanted + ", found " + std::string(json_type(value));
  }
  if (property.contains("enum")) {
    const auto& allowed = property.at("enum");
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      std::vector<std::string> names;
      for (const auto& item : allowed) names.push_back(item.get<std::string>());
      return "argument \"" + name + "\" must be one of " + join(names, ", ");
    }
  }
  if (property.contains("minimum") && value.get<double>() < property.at("minimum").get<double>()) {
    return "argument \"" + name + "\" must be at least " + property.at("minimum").dump();
  }
  return "";
}

}  // namespace

std::string check_arguments(std::string_view tool, const Json& schema, const Json& arguments) {
  const auto use = ". Use: " + usage(tool, schema);
  if (!arguments.is_object()) return "the arguments must be a JSON object" + use;
  const auto& properties = schema.at("properties");
  std::vector<std::string> names;
  for (const auto& [name, property] : properties.items()) names.push_back(name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const auto& [name, value] : arguments.items()) {
    if (!properties.contains(name)) {
      return "there is no argument \"" + name + "\"" + did_you_mean(name, known) + use;
    }
    if (const auto wrong = one_argument(name, properties.at(name), value); !wrong.empty()) return wrong + use;
  }
  for (const auto& name : schema.at("required")) {
    if (!arguments.contains(name.get<std::string>()))
      return "argument \"" + name.get<std::string>() + "\" is missing" + use;
  }
  return "";
}

}  // namespace tandem::envs
