#include "base/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"

namespace tandem {

Field& Schema::field(std::string path, FieldType type, std::string doc) {
  fields_.push_back({.path = std::move(path),
                     .type = type,
                     .doc = std::move(doc),
                     .unset = {},
                     .choices = {},
                     .example = {},
                     .set = {},
                     .get = {}});
  return fields_.back();
}

Schema& Schema::add(std::string path, bool& target, std::string doc) {
  Field& f = field(std::move(path), FieldType::kBool, std::move(doc));
  f.set = [&target](const Json& v) { target = v.get<bool>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}
Schema& Schema::add(std::string path, int& target, std::string doc, double least, double most) {
  Field& f = field(std::move(path), FieldType::kInteger, std::move(doc));
  f.least = least;
  f.most = most;
  f.set = [&target](const Json& v) { target = v.get<int>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}
Schema& Schema::add(std::string path, uint64_t& target, std::string doc) {
  Field& f = field(std::move(path), FieldType::kInteger, std::move(doc));
  f.least = 0;
  f.most = 9007199254740992.0;  // beyond it a double is no whole number for sure
  f.set = [&target](const Json& v) { target = v.get<uint64_t>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}
Schema& Schema::add(std::string path, double& target, std::string doc, double least, double most) {
  Field& f = field(std::move(path), FieldType::kNumber, std::move(doc));
  f.least = least;
  f.most = most;
  f.set = [&target](const Json& v) { target = v.get<double>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}
Schema& Schema::add(std::string path, std::optional<double>& target, std::string doc, double least, double most,
                    double unset) {
  Field& f = field(std::move(path), FieldType::kNumber, std::move(doc));
  f.least = least;
  f.most = most;
  f.unset = unset;
  f.set = [&target, unset](const Json& v) {
    const double value = v.get<double>();
    target = value == unset ? std::nullopt : std::optional(value);
  };
  f.get = [&target, unset] { return Json(target.value_or(unset)); };
  return *this;
}
Schema& Schema::add(std::string path, std::optional<int>& target, std::string doc, double least, double most,
                    int unset) {
  Field& f = field(std::move(path), FieldType::kInteger, std::move(doc));
  f.least = least;
  f.most = most;
  f.unset = unset;
  f.set = [&target, unset](const Json& v) {
    const int value = v.get<int>();
    target = value == unset ? std::nullopt : std::optional(value);
  };
  f.get = [&target, unset] { return Json(target.value_or(unset)); };
  return *this;
}
Schema& Schema::add(std::string path, std::optional<bool>& target, std::string doc) {
  Field& f = field(std::move(path), FieldType::kBool, std::move(doc));
  f.set = [&target](const Json& v) { target = v.is_null() ? std::nullopt : std::optional(v.get<bool>()); };
  f.get = [&target] { return target ? Json(*target) : Json(); };
  return *this;
}
Schema& Schema::add(std::string path, std::string& target, std::string doc, std::vector<std::string> choices) {
  Field& f = field(std::move(path), FieldType::kText, std::move(doc));
  f.choices = std::move(choices);
  f.set = [&target](const Json& v) { target = v.get<std::string>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}
Schema& Schema::add(std::string path, std::vector<std::string>& target, std::string doc,
                    std::vector<std::string> choices) {
  Field& f = field(std::move(path), FieldType::kTextList, std::move(doc));
  f.choices = std::move(choices);
  f.set = [&target](const Json& v) { target = v.get<std::vector<std::string>>(); };
  f.get = [&target] { return Json(target); };
  return *this;
}

Schema& Schema::example(std::string value) {
  fields_.back().example = std::move(value);
  return *this;
}

Json Schema::resolved() const {
  Json root = Json::object();
  for (const Field& f : fields_) {
    Json* place = &root;
    for (const auto part : split(f.path, '.')) place = &(*place)[std::string(part)];
    *place = f.get();
  }
  return root;
}

Status Schema::apply_resolved(const Json& resolved) {
  if (!resolved.is_object()) return Status::invalid("not a JSON object");
  for (Field& f : fields_) {
    const Json* place = &resolved;
    for (const auto part : split(f.path, '.')) {
      const auto found = place->find(std::string(part));
      place = place->is_object() && found != place->end() ? &*found : nullptr;
      if (place == nullptr) break;
    }
    if (place == nullptr) continue;
    try {
      f.set(*place);
    } catch (const Json::exception& error) {
      return Status::invalid(fmt::format("{}: {}", f.path, error.what()));
    }
  }
  return {};
}

namespace {
std::string_view type_name(FieldType type) {
  switch (type) {
    case FieldType::kBool:
      return "boolean";
    case FieldType::kInteger:
      return "integer";
    case FieldType::kNumber:
      return "number";
    case FieldType::kText:
      return "string";
    case FieldType::kTextList:
      return "array";
  }
  return "";
}
}  // namespace

Json Schema::json_schema() const {
  Json root = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"type", "object"}, {"additionalProperties", false}};
  root["properties"]["extends"] = {{"description", "A file, or a list of files, whose values this one changes"}};
  for (const Field& f : fields_) {
    Json* place = &root;
    const auto parts = split(f.path, '.');
    for (size_t i = 0; i < parts.size(); ++i) {
      place = &(*place)["properties"][std::string(parts[i])];
      if (i + 1 < parts.size()) {
        (*place)["type"] = "object";
        (*place)["additionalProperties"] = false;
      }
    }
    *place = {{"type", type_name(f.type)}, {"description", f.doc}, {"default", f.get()}};
    if (const auto example = f.example.empty() ? Result<Json>(Json()) : parse_json(f.example);
        example && !example->is_null())
      (*place)["examples"] = {*example};
    if (f.type == FieldType::kTextList) (*place)["items"] = {{"type", "string"}};
    if (f.least < f.most) {
      Json& range = f.unset ? (*place)["anyOf"][0] : *place;
      range["minimum"] = f.least;
      range["maximum"] = f.most;
      const bool whole = f.type == FieldType::kInteger;
      if (f.unset)
        (*place)["anyOf"].push_back({{"const", whole ? Json(static_cast<int64_t>(*f.unset)) : Json(*f.unset)}});
    }
    if (!f.choices.empty()) (f.type == FieldType::kTextList ? (*place)["items"] : *place)["enum"] = f.choices;
  }
  return root;
}

std::string Schema::reference_page() const {
  std::string page = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const Field& f : fields_) {
    std::string meaning = f.doc;
    auto named = f.choices;  // what an empty one means is in the text
    std::erase(named, "");
    if (!named.empty()) meaning += fmt::format(" ({})", fmt::join(named, ", "));
    if (f.least < f.most && f.most < 9e15) meaning += fmt::format(" ({} to {})", f.least, f.most);
    page += fmt::format("| `{}` | {} | `{}` | {} |\n", f.path, type_name(f.type), dump_json(f.get()), meaning);
  }
  return page;
}

std::string Schema::origin(const std::string& path) const {
  const auto found = origins_.find(path);
  return found == origins_.end() ? "default" : found->second.place;
}

}  // namespace tandem
