#include "serve/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::serve {
namespace {

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

std::string name_of_type(std::string_view type) {
  const bool vowel = type == "integer" || type == "array" || type == "object";
  return fmt::format("{} {}", vowel ? "an" : "a", type);
}

// What may stand there, in words.
std::string expected(const Json& schema) {
  if (schema.contains("enum")) {
    std::vector<std::string> values;
    for (const Json& value : schema["enum"]) values.push_back(dump_json(value));
    return fmt::format("one of {}", join(values, ", "));
  }
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types.push_back(name_of_type(type->get<std::string>()));
    if (type->is_array()) {
      for (const Json& one : *type) types.push_back(name_of_type(one.get<std::string>()));
    }
  }
  std::string words = join(types, " or ");
  const auto bound = [&](const char* key) { return schema.contains(key) ? dump_json(schema[key]) : std::string(); };
  const auto range = [&](const char* least, const char* most, std::string_view unit) {
    const auto from = bound(least), to = bound(most);
    if (!from.empty() && !to.empty()) words += fmt::format(" of {} to {}{}", from, to, unit);
    if (!from.empty() && to.empty()) words += fmt::format(" of at least {}{}", from, unit);
    if (from.empty() && !to.empty()) words += fmt::format(" of at most {}{}", to, unit);
  };
  range("minimum", "maximum", "");
  range("minItems", "maxItems", " items");
  range("minLength", "maxLength", " bytes");
  return words;
}

std::string shown(const Json& value) {
  std::string text = dump_json(value);
  constexpr size_t kMost = 60;
  if (text.size() > kMost) text = fmt::format("{} of {} bytes", value.type_name(), text.size());
  return text;
}

bool fits(const Json& schema, const Json& value) {
  if (schema.contains("enum")) {
    return std::any_of(schema["enum"].begin(), schema["enum"].end(), [&](const Json& one) { return one == value; });
  }
  if (const auto type = schema.find("type"); type != schema.end()) {
    const bool known = type->is_string() ? is_of_type(value, type->get<std::string>())
                                         : std::any_of(type->begin(), type->end(), [&](const Json& one) {
                                             return is_of_type(value, one.get<std::string>());
                                           });
    if (!known) return false;
  }
  const auto within = [&](const char* least, const char* most, double number) {
    return !(schema.contains(least) && number < schema[least].get<double>()) &&
           !(schema.contains(most) && number > schema[most].get<double>());
  };
  if (value.is_number() && !within("minimum", "maximum", value.get<double>())) return false;
  if (value.is_array() && !within("minItems", "maxItems", static_cast<double>(value.size()))) return false;
  return !value.is_string() ||
         within("minLength", "maxLength", static_cast<double>(value.get_ref<const std::string&>().size()));
}

}  // namespace

Status check_schema(const Json& schema, const Json& value) {
  if (fits(schema, value)) return {};
  return Status::invalid(fmt::format("must be {}, not {}", expected(schema), shown(value)));
}

FieldTable::FieldTable(std::vector<std::span<const FieldRow>> parts) {
  for (const auto& part : parts) {
    for (const FieldRow& row : part) rows_.push_back({row, *parse_json(row.schema)});
  }
}

const FieldTable::Row* FieldTable::find(std::string_view name) const {
  const auto found = std::ranges::find(rows_, name, [](const Row& row) { return row.row.name; });
  return found == rows_.end() ? nullptr : &*found;
}

Json FieldTable::json_schema(std::span<const std::string_view> required) const {
  Json properties = Json::object();
  for (const auto& [row, schema] : rows_) {
    Json property = schema;
    std::string about(row.about);
    if (row.effect == Effect::kIgnored) about = "Accepted, without effect. " + about;
    if (row.effect == Effect::kRefused)
      about = "Not supported: only values that ask for nothing are accepted. " + about;
    property["description"] = about;
    if (std::ranges::find(required, row.name) == required.end()) {
      if (property.contains("type") && !property.contains("enum")) {
        if (property["type"].is_string()) property["type"] = Json::array({property["type"]});
        property["type"].push_back("null");
      } else if (property.contains("enum")) {
        property["enum"].push_back(nullptr);
      }
    }
    properties[std::string(row.name)] = std::move(property);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  for (const auto name : required) schema["required"].push_back(name);
  return schema;
}

Status Fields::read(const FieldTable& table, std::string_view body) {
  auto parsed = parse_json(body);
  if (!parsed) return Status::invalid(fmt::format("the body is no JSON: {}", parsed.error().message()));
  body_ = std::move(*parsed);
  if (!body_.is_object()) return Status::invalid("the body must be a JSON object");
  for (const auto& [name, value] : body_.items()) {
    const auto* const row = table.find(name);
    if (row == nullptr) {
      std::vector<std::string_view> names;
      for (const auto& known : table.rows()) names.push_back(known.row.name);
      const auto near = nearest(name, names);
      return wrong(name, fmt::format("there is no field \"{}\" here{}", name.substr(0, 60),
                                     near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
    if (value.is_null()) continue;
    if (row->row.effect == Effect::kRefused && !fits(row->schema, value)) {
      return wrong(name, fmt::format("\"{}\" is not supported: leave it out. {}", name, row->row.about));
    }
    if (const Status status = check_schema(row->schema, value); !status.ok())
      return wrong(name, fmt::format("\"{}\" {}", name, status.message()));
  }
  return {};
}

const Json* Fields::get(std::string_view name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}
int Fields::integer(std::string_view name, int otherwise) const {
  const Json* const value = get(name);
  return value == nullptr ? otherwise : value->get<int>();
}
double Fields::number(std::string_view name, double otherwise) const {
  const Json* const value = get(name);
  return value == nullptr ? otherwise : value->get<double>();
}
bool Fields::boolean(std::string_view name, bool otherwise) const {
  const Json* const value = get(name);
  return value == nullptr ? otherwise : value->get<bool>();
}
std::string Fields::text(std::string_view name, std::string otherwise) const {
  const Json* const value = get(name);
  return value == nullptr ? std::move(otherwise) : value->get<std::string>();
}

Status Fields::wrong(std::string_view param, std::string message) {
  param_ = param;
  return Status::invalid(std::move(message));
}
Status Fields::wrong(std::string_view param, Status status) {
  param_ = param;
  return status;
}

}  // namespace tandem::serve
