#include "model/tool_dialects/text_types.h"

#include <cmath>

namespace tandem::model {

namespace {

using Types = std::optional<uint8_t>;
constexpr int kMaxVisits = 1000;  // of schemas, which may refer to each other over and over

class Reader {
 public:
  explicit Reader(const Json& root) : root_(root) {}

  Types of(const Json& schema) {
    if (!schema.is_object() || ++visits_ > kMaxVisits) return std::nullopt;
    Types types;
    const auto keep = [&](const Types& more) {
      if (more) types = types.value_or(0xFF) & *more;
    };
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "type") keep(of_names(value));
      if (keyword == "enum" && value.is_array()) keep(of_values(value));
      if (keyword == "const") keep(type_of_value(value));
      if (keyword == "$ref") keep(of_reference(value));
      if ((keyword == "anyOf" || keyword == "oneOf") && value.is_array()) keep(of_any(value));
      if (keyword != "allOf" || !value.is_array()) continue;
      for (const Json& one : value) keep(of(one));
    }
    // OpenAPI's way to allow null.
    if (types && schema.value("nullable", Json()) == true) types = *types | kNullText;
    return types;
  }

 private:
  static Types of_names(const Json& names) {
    uint8_t types = 0;
    for (const Json& name : names.is_array() ? names : Json::array({names})) {
      if (name == "null") types |= kNullText;
      if (name == "boolean") types |= kBooleanText;
      if (name == "integer" || name == "number") types |= kIntegerText;
      if (name == "number") types |= kFractionText;
      if (name == "string") types |= kStringText;
      if (name == "array") types |= kArrayText;
      if (name == "object") types |= kObjectText;
    }
    return types;
  }
  static Types of_values(const Json& values) {
    uint8_t types = 0;
    for (const Json& value : values) types |= type_of_value(value);
    return types;
  }
  Types of_any(const Json& branches) {
    uint8_t types = 0;
    for (const Json& branch : branches) {
      const Types one = of(branch);
      if (!one) return std::nullopt;
      types |= *one;
    }
    return types;
  }
  Types of_reference(const Json& reference) {
    if (!reference.is_string() || !reference.get_ref<const std::string&>().starts_with("#")) return std::nullopt;
    try {
      const Json::json_pointer at(reference.get_ref<const std::string&>().substr(1));
      return root_.contains(at) ? of(root_.at(at)) : std::nullopt;
    } catch (const Json::exception&) {  // not a pointer
      return std::nullopt;
    }
  }

  const Json& root_;
  int visits_ = 0;
};

}  // namespace

std::optional<uint8_t> types_of_parameter(const Json& parameters, const std::string& key) {
  if (!parameters.is_object()) return std::nullopt;
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object() || !properties->contains(key)) return std::nullopt;
  return Reader(parameters).of((*properties)[key]);
}

uint8_t type_of_value(const Json& value) {
  if (value.is_null()) return kNullText;
  if (value.is_boolean()) return kBooleanText;
  if (value.is_string()) return kStringText;
  if (value.is_array()) return kArrayText;
  if (value.is_object()) return kObjectText;
  return value.is_number_integer() || value.get<double>() == std::floor(value.get<double>()) ? kIntegerText
                                                                                             : kFractionText;
}

}  // namespace tandem::model
