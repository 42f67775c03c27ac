#include "envs/mcp/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr int kDeepest = 64;
constexpr int kMostSteps = 20'000;
constexpr size_t kSchemaCheckMostShown = 10;

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return type != "null" || value.is_null();  // a type that nobody knows is not refused here
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string list_of(const Json& values) {
  std::vector<std::string> words;
  for (const auto& value : values) {
    if (words.size() == kSchemaCheckMostShown) {
      words.emplace_back("...");
      break;
    }
    words.push_back(value.is_string() ? value.get<std::string>() : dump_json(value));
  }
  return join(words, ", ");
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  std::string check(const Json& schema, const Json& value, const std::string& where, int depth) {
    if (depth > kDeepest || ++steps_ > kMostSteps) return "";
    if (schema.is_boolean()) return schema.get<bool>() ? "" : said(where, "is not wanted");
    if (!schema.is_object()) return "";
    if (const auto* target = referred(schema)) {
      if (auto wrong = check(*target, value, where, depth + 1); !wrong.empty()) return wrong;
    }
    if (auto wrong = check_kind(schema, value, where); !wrong.empty()) return wrong;
    if (auto wrong = check_bounds(schema, value, where); !wrong.empty()) return wrong;
    if (value.is_object()) {
      if (auto wrong = check_members(schema, value, where, depth); !wrong.empty()) return wrong;
    }
    if (value.is_array()) {
      if (auto wrong = check_items(schema, value, where, depth); !wrong.empty()) return wrong;
    }
    return check_joined(schema, value, where, depth);
  }

 private:
  static std::string said(const std::string& where, const std::string& what) {
    return where.empty() ? "the arguments " + what : "argument \"" + where + "\" " + what;
  }

  static const Json* member(const Json& schema, const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  }

  const Json* referred(const Json& schema) const {
    const auto* reference = member(schema, "$ref");
    if (!reference || !reference->is_string()) return nullptr;
    const auto& path = reference->get_ref<const std::string&>();
    if (!path.starts_with("#")) return nullptr;
    try {
      const Json::json_pointer pointer(path.substr(1));
      return root_.contains(pointer) ? &root_.at(pointer) : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  static std::string check_kind(const Json& schema, const Json& value, const std::string& where) {
    if (const auto* type = member(schema, "type")) {
      const Json types = type->is_array() ? *type : Json::array({*type});
      const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& one) {
        return !one.is_string() || is_of_type(value, one.get_ref<const std::string&>());
      });
      if (!fits) return said(where, fmt::format("must be of type {}", list_of(types)));
    }
    const auto* values = member(schema, "enum");
    if (values && values->is_array() && std::find(values->begin(), values->end(), value) == values->end())
      return said(where, "must be one of " + list_of(*values));
    if (const auto* only = member(schema, "const"); only && *only != value)
      return said(where, "must be " + dump_json(*only));
    return "";
  }

  static std::string check_bounds(const Json& schema, const Json& value, const std::string& where) {
    const auto bound = [&](const char* key, double& limit) {
      const auto* found = member(schema, key);
      if (!found || !found->is_number()) return false;
      limit = found->get<double>();
      return true;
    };
    double limit = 0;
    if (value.is_number()) {
      const double number = value.get<double>();
      if (bound("minimum", limit) && number < limit) return said(where, fmt::format("must be at least {}", limit));
      if (bound("maximum", limit) && number > limit) return said(where, fmt::format("must be at most {}", limit));
      if (bound("exclusiveMinimum", limit) && number <= limit)
        return said(where, fmt::format("must be above {}", limit));
      if (bound("exclusiveMaximum", limit) && number >= limit)
        return said(where, fmt::format("must be below {}", limit));
      return "";
    }
    struct Count {
      const char *least, *most, *what;
      double count;
    };
    Count count{};
    if (value.is_string())
      count = {"minLength", "maxLength", "characters", static_cast<double>(characters(value.get<std::string>()))};
    else if (value.is_array())
      count = {"minItems", "maxItems", "items", static_cast<double>(value.size())};
    else if (value.is_object())
      count = {"minProperties", "maxProperties", "members", static_cast<double>(value.size())};
    else
      return "";
    if (bound(count.least, limit) && count.count < limit)
      return said(where, fmt::format("must have at least {} {}, found {}", limit, count.what, count.count));
    if (bound(count.most, limit) && count.count > limit)
      return said(where, fmt::format("must have at most {} {}, found {}", limit, count.what, count.count));
    return "";
  }

  std::string check_members(const Json& schema, const Json& value, const std::string& where, int depth) {
    const auto* properties = member(schema, "properties");
    if (properties && !properties->is_object()) properties = nullptr;
    const auto* others = member(schema, "additionalProperties");
    const bool has_patterns = schema.contains("patternProperties");
    const auto inside = [&](const std::string& name) { return where.empty() ? name : where + "." + name; };
    if (const auto* required = member(schema, "required"); required && required->is_array()) {
      for (const auto& name : *required) {
        if (name.is_string() && !value.contains(name.get_ref<const std::string&>()))
          return said(inside(name.get<std::string>()), "is missing");
      }
    }
    for (const auto& [name, item] : value.items()) {
      const Json* of = properties && properties->contains(name) ? &properties->at(name) : nullptr;
      if (!of && others && !has_patterns) {
        if (others->is_boolean() && !others->get<bool>()) {
          std::vector<std::string_view> known;
          if (properties) {
            for (const auto& property : properties->items()) known.push_back(property.key());
          }
          return fmt::format("there is no argument \"{}\"{}", inside(name),
                             known.empty() ? "" : did_you_mean(name, known));
        }
        of = others;
      }
      if (!of) continue;
      if (auto wrong = check(*of, item, inside(name), depth + 1); !wrong.empty()) return wrong;
    }
    return "";
  }

  std::string check_items(const Json& schema, const Json& value, const std::string& where, int depth) {
    const auto* first = member(schema, "prefixItems");
    if (first && !first->is_array()) first = nullptr;
    const auto* rest = member(schema, "items");
    for (size_t i = 0; i < value.size(); ++i) {
      const Json* of = first && i < first->size() ? &first->at(i) : rest;
      if (!of) continue;
      if (auto wrong = check(*of, value[i], fmt::format("{}[{}]", where, i), depth + 1); !wrong.empty()) return wrong;
    }
    return "";
  }

  std::string check_joined(const Json& schema, const Json& value, const std::string& where, int depth) {
    if (const auto* all = member(schema, "allOf"); all && all->is_array()) {
      for (const auto& one : *all) {
        if (auto wrong = check(one, value, where, depth + 1); !wrong.empty()) return wrong;
      }
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      const auto* choices = member(schema, key);
      if (!choices || !choices->is_array() || choices->empty()) continue;
      std::string first_wrong;
      // That more than one of oneOf fits is for the server to say: what is not known here could tell them apart.
      const bool any = std::any_of(choices->begin(), choices->end(), [&](const Json& one) {
        auto wrong = check(one, value, where, depth + 1);
        if (first_wrong.empty()) first_wrong = wrong;
        return wrong.empty();
      });
      if (!any) return first_wrong;
    }
    return "";
  }

  const Json& root_;
  int steps_ = 0;
};

}  // namespace

std::string check_by_schema(const Json& schema, const Json& value) {
  return Checker(schema).check(schema, value, "", 0);
}

}  // namespace tandem::envs
