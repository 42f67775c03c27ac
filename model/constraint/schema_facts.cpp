#include "model/constraint/schema_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "model/constraint/formats.h"
#include "model/constraint/pattern.h"

namespace tandem::model::constraint {

namespace {

constexpr size_t kMaxValues = 20'000;  // of an enum
constexpr uint32_t kMaxMultiple = 10'000;

// Say nothing about which values are valid.
constexpr std::array<std::string_view, 24> kAnnotations = {
    "$schema", "$comment",     "$id",           "$defs",          "definitions",      "title",
    "default", "description",  "examples",      "deprecated",     "readOnly",         "writeOnly",
    "example", "externalDocs", "discriminator", "contentSchema",  "contentEncoding",  "contentMediaType",
    "xml",     "$anchor",      "$vocabulary",   "$dynamicAnchor", "propertyOrdering", "nullable"};

// Constraints that are not implemented, and the type whose values alone they are about; empty: all.
struct Unheld {
  std::string_view keyword, type;
};
constexpr std::array kUnheld = {Unheld{"patternProperties", "object"},
                                Unheld{"propertyNames", "object"},
                                Unheld{"dependentRequired", "object"},
                                Unheld{"dependentSchemas", "object"},
                                Unheld{"dependencies", "object"},
                                Unheld{"unevaluatedProperties", "object"},
                                Unheld{"contains", "array"},
                                Unheld{"unevaluatedItems", "array"},
                                Unheld{"additionalItems", "array"},
                                Unheld{"uniqueItems", "array"},
                                Unheld{"not", ""},
                                Unheld{"if", ""},
                                Unheld{"$dynamicRef", ""},
                                Unheld{"$recursiveRef", ""}};
// Which say something beside one of those alone.
constexpr std::array<std::string_view, 4> kBesideUnheld = {"then", "else", "minContains", "maxContains"};

constexpr std::array<std::string_view, 29> kImplemented = {"$ref",
                                                           "type",
                                                           "enum",
                                                           "const",
                                                           "allOf",
                                                           "anyOf",
                                                           "oneOf",
                                                           "minimum",
                                                           "maximum",
                                                           "multipleOf",
                                                           "exclusiveMinimum",
                                                           "exclusiveMaximum",
                                                           "minLength",
                                                           "maxLength",
                                                           "pattern",
                                                           "format",
                                                           "items",
                                                           "prefixItems",
                                                           "minItems",
                                                           "maxItems",
                                                           "uniqueItems",
                                                           "properties",
                                                           "required",
                                                           "additionalProperties",
                                                           "minProperties",
                                                           "maxProperties",
                                                           "title",
                                                           "description",
                                                           "default"};

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

class Reader {
 public:
  Reader(const Pending& pending, std::span<const SchemaRoot> roots, TextAutomata& automata, SchemaFacts& facts,
         Schemas& one_of)
      : schema_(pending.schema),
        chain_(pending.chain),
        roots_(roots),
        automata_(automata),
        facts_(facts),
        one_of_(one_of) {}

  Status run() {
    const Json& json = *schema_.json;
    if (json.is_boolean()) {
      if (!json.get<bool>()) facts_.types = 0;
      return {};
    }
    if (!json.is_object()) return wrong("a schema is an object, true or false");
    for (const auto& [keyword, value] : json.items()) {
      if (std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end()) {
        if (keyword == "$id" && schema_.json != schema_.root->json) return not_implemented(keyword);
        continue;
      }
      TRY(read(keyword, value));
    }
    TRY(numeric_format());
    if (json.contains("items") || json.contains("prefixItems")) TRY(read_items());
    if (json.contains("properties") || json.contains("additionalProperties")) TRY(read_properties());
    return {};
  }

 private:
  Schema below(std::string_view keyword, const Json& json) const {
    const auto own = std::find_if(roots_.begin(), roots_.end(), [&](const SchemaRoot& r) { return r.json == &json; });
    return {&json, fmt::format("{}/{}", schema_.place, keyword), own != roots_.end() ? &*own : schema_.root};
  }
  Schema below(std::string_view keyword, std::string_view key, const Json& json) const {
    return below(fmt::format("{}/{}", keyword, escaped(key)), json);
  }

  Status wrong(std::string_view what) const {
    return Status::invalid(fmt::format("the schema at #{}: {}", schema_.place, what));
  }
  Status not_implemented(std::string_view keyword) const {
    return wrong(fmt::format("\"{}\" is not implemented", keyword))
        .hint("leave it out where it need not hold; docs/constrained.md lists what holds");
  }

  Status read(const std::string& keyword, const Json& value) {
    if (keyword == "type") return read_type(value);
    if (keyword == "enum") {
      if (!value.is_array() || value.empty()) return wrong("\"enum\" is a list of values");
      return keep_values({value.begin(), value.end()});
    }
    if (keyword == "const") return keep_values({value});
    if (keyword == "$ref") return read_reference(value);
    if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf") return read_branches(keyword, value);
    if (keyword == "minimum") return read_bound(keyword, value, false, &NumberRules::at_least);
    if (keyword == "maximum") return read_bound(keyword, value, false, &NumberRules::at_most);
    if (keyword == "exclusiveMinimum") return read_bound(keyword, value, true, &NumberRules::at_least);
    if (keyword == "exclusiveMaximum") return read_bound(keyword, value, true, &NumberRules::at_most);
    if (keyword == "multipleOf") return read_multiple(value);
    if (keyword == "minLength") return read_least(keyword, value, facts_.min_length);
    if (keyword == "maxLength") return read_most(keyword, value, facts_.max_length);
    if (keyword == "minItems") return read_least(keyword, value, facts_.min_items);
    if (keyword == "maxItems") return read_most(keyword, value, facts_.max_items);
    if (keyword == "minProperties") return read_least(keyword, value, facts_.min_properties);
    if (keyword == "maxProperties") return read_most(keyword, value, facts_.max_properties);
    if (keyword == "pattern") return read_text(keyword, value);
    if (keyword == "format") return read_text(keyword, value);
    if (keyword == "required") return read_required(value);
    if (keyword == "items" || keyword == "prefixItems" || keyword == "properties" || keyword == "additionalProperties")
      return {};  // together, when all is read
    if (keyword.starts_with("x-") ||
        std::find(kBesideUnheld.begin(), kBesideUnheld.end(), keyword) != kBesideUnheld.end())
      return {};
    for (const Unheld& unheld : kUnheld)
      if (unheld.keyword == keyword) return binds(unheld, value) ? not_implemented(keyword) : Status();
    // What nobody knows says nothing, as JSON Schema has it, but for what somebody meant to write.
    const auto near = nearest(keyword, kImplemented);
    if (near.empty()) return {};
    return wrong(fmt::format("\"{}\" is no keyword{}", keyword, did_you_mean(keyword, kImplemented)));
  }

  // Whether a constraint that is not implemented could make a value invalid that the rest of this schema allows.
  bool binds(const Unheld& unheld, const Json& value) const {
    const Json& json = *schema_.json;
    if (const auto type = json.find("type"); type != json.end() && !unheld.type.empty()) {
      const Json names = type->is_array() ? *type : Json::array({*type});
      if (std::none_of(names.begin(), names.end(), [&](const Json& name) { return name == unheld.type; })) return false;
    }
    if (unheld.keyword == "not") return value != Json(false);
    if (unheld.keyword == "if") return json.contains("then") || json.contains("else");
    if (unheld.keyword == "contains")
      return json.value("minContains", Json()) != Json(0) || json.contains("maxContains");
    if (unheld.keyword == "additionalItems") return json.contains("items") && json["items"].is_array();
    if (unheld.keyword == "uniqueItems") return value != Json(false);
    return value != Json(true) && value != Json::object();
  }

  Status read_type(const Json& value) {
    static const std::map<std::string, uint8_t, std::less<>> kTypes = {
        {"null", kNull},   {"boolean", kBoolean}, {"integer", kInteger}, {"number", kInteger | kFraction},
        {"string", kText}, {"array", kArray},     {"object", kObject}};
    uint8_t types = 0;
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
      const auto found = one.is_string() ? kTypes.find(one.get_ref<const std::string&>()) : kTypes.end();
      if (found == kTypes.end()) {
        return wrong(fmt::format(
            "\"type\" is {}; it is one of null, boolean, integer, number, string, array, object, or a list of them",
            one.dump()));
      }
      types |= found->second;
    }
    if (schema_.json->value("nullable", Json()) == Json(true)) types |= kNull;  // OpenAPI's
    facts_.types &= types;
    return {};
  }

  Status keep_values(const std::vector<Json>& values) {
    if (values.size() > kMaxValues)
      return wrong(fmt::format("\"enum\" has {} values, at most {} are read", values.size(), kMaxValues));
    if (!facts_.values) {
      facts_.values = values;
      return {};
    }
    std::set<std::string> kept;
    for (const Json& value : values) kept.insert(canonical(value));
    std::erase_if(*facts_.values, [&](const Json& value) { return !kept.contains(canonical(value)); });
    return {};
  }

  Status read_reference(const Json& value) {
    if (!value.is_string()) return wrong("\"$ref\" is a text");
    const std::string& text = value.get_ref<const std::string&>();
    if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/'))
      return wrong(fmt::format("\"$ref\" is \"{}\"; only places of the same schema (\"#/$defs/NAME\") are read", text));
    std::string pointer;
    for (size_t i = 1; i < text.size(); ++i) {
      if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
          std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0) {
        pointer += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        pointer += text[i];
      }
    }
    const Json* target = nullptr;
    try {
      const Json::json_pointer at(pointer);
      if (schema_.root->json->contains(at)) target = &schema_.root->json->at(at);
    } catch (const Json::exception&) {  // not a pointer
    }
    if (target == nullptr) return wrong(fmt::format("\"$ref\" is \"{}\", which is not there", text));
    if (target == schema_.json || std::find(chain_.begin(), chain_.end(), target) != chain_.end())
      return wrong(fmt::format("\"$ref\" is \"{}\", which leads back to itself without a value between", text));
    auto chain = chain_;
    chain.push_back(schema_.json);
    facts_.pending.push_back({{target, schema_.root->place + pointer, schema_.root}, std::move(chain)});
    return {};
  }

  Status read_branches(const std::string& keyword, const Json& value) {
    if (!value.is_array() || value.empty()) return wrong(fmt::format("\"{}\" is a list of schemas", keyword));
    std::vector<Pending> branches;
    auto chain = chain_;
    chain.push_back(schema_.json);
    for (size_t i = 0; i < value.size(); ++i) branches.push_back({below(keyword, std::to_string(i), value[i]), chain});
    if (keyword == "allOf") {
      facts_.pending.insert(facts_.pending.end(), branches.begin(), branches.end());
      return {};
    }
    if (keyword == "oneOf" && value.size() > 1) one_of_.push_back(schema_);
    facts_.choices.push_back(std::move(branches));
    return {};
  }

  Status read_bound(const std::string& keyword, const Json& value, bool exclusive,
                    void (NumberRules::*add)(const Bound&)) {
    if (!value.is_number()) return wrong(fmt::format("\"{}\" is a number", keyword));
    auto bound = Bound::of(value, exclusive);
    if (!bound) return wrong(fmt::format("\"{}\" is out of reach: {}", keyword, bound.error().message()));
    (facts_.numbers.*add)(*bound);
    return {};
  }

  Status read_multiple(const Json& value) {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0)) return wrong("\"multipleOf\" is a number above 0");
    if (number != std::floor(number) || number > kMaxMultiple)
      return wrong(
          fmt::format("\"multipleOf\" is {}; whole numbers up to {} are implemented", value.dump(), kMaxMultiple));
    const uint64_t both =
        std::lcm<uint64_t, uint64_t>(static_cast<uint64_t>(number), std::max(facts_.numbers.multiple_of, 1u));
    if (both > kMaxMultiple)
      return wrong(fmt::format("\"multipleOf\" amounts to {}, at most {} is implemented", both, kMaxMultiple));
    facts_.numbers.multiple_of = static_cast<uint32_t>(both);
    facts_.types &= static_cast<uint8_t>(~kFraction);  // multiples of a whole number are whole
    return {};
  }

  Result<uint32_t> count(const std::string& keyword, const Json& value) const {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0) || number != std::floor(number))
      return fail(wrong(fmt::format("\"{}\" is a whole number from 0 on", keyword)));
    return number >= kUnlimited ? kUnlimited : static_cast<uint32_t>(number);
  }
  Status read_least(const std::string& keyword, const Json& value, uint32_t& least) {
    least = std::max(least, TRY(count(keyword, value)));
    if (least == kUnlimited) return wrong(fmt::format("\"{}\" is more than any text has", keyword));
    return {};
  }
  Status read_most(const std::string& keyword, const Json& value, uint32_t& most) {
    most = std::min(most, TRY(count(keyword, value)));
    return {};
  }

  Status read_text(const std::string& keyword, const Json& value) {
    if (!value.is_string()) return wrong(fmt::format("\"{}\" is a text", keyword));
    const std::string& text = value.get_ref<const std::string&>();
    const bool numeric = text == "int32" || text == "int64" || text == "float" || text == "double";
    const auto formats = format_names();
    // A format that is not known is an annotation.
    if (keyword == "format" && (numeric || std::find(formats.begin(), formats.end(), text) == formats.end())) return {};
    auto dfa = keyword == "pattern" ? automata_.pattern(text) : automata_.format(text);
    if (!dfa) return wrong(fmt::format("\"{}\" is \"{}\": {}", keyword, text, dfa.error().message()));
    facts_.texts.push_back(std::move(*dfa));
    return {};
  }

  // OpenAPI's formats of numbers: the sizes of integers bind, those of other numbers are what numbers are anyway.
  Status numeric_format() {
    const auto format = schema_.json->find("format");
    if (format == schema_.json->end() || (*format != "int32" && *format != "int64")) return {};
    const bool small = *format == "int32";
    facts_.numbers.at_least(TRY(Bound::of(small ? Json(INT32_MIN) : Json(INT64_MIN), false)));
    facts_.numbers.at_most(TRY(Bound::of(small ? Json(INT32_MAX) : Json(INT64_MAX), false)));
    return {};
  }

  Status read_required(const Json& value) {
    if (!value.is_array()) return wrong("\"required\" is a list of names");
    for (const Json& name : value) {
      if (!name.is_string()) return wrong("\"required\" is a list of names");
      facts_.required.insert(name.get<std::string>());
    }
    return {};
  }

  Status read_items() {
    const Json& json = *schema_.json;
    SchemaFacts::ItemsPart part;
    if (const auto prefix = json.find("prefixItems"); prefix != json.end()) {
      if (!prefix->is_array()) return wrong("\"prefixItems\" is a list of schemas");
      for (size_t i = 0; i < prefix->size(); ++i)
        part.prefix.push_back(below("prefixItems", std::to_string(i), (*prefix)[i]));
    }
    if (const auto rest = json.find("items"); rest != json.end()) {
      if (rest->is_array())
        return wrong("\"items\" is a list").hint("that is the notation of draft 7; \"prefixItems\" is today's");
      part.rest = below("items", *rest);
    }
    facts_.items.push_back(std::move(part));
    return {};
  }

  Status read_properties() {
    const Json& json = *schema_.json;
    SchemaFacts::PropertiesPart part;
    if (const auto named = json.find("properties"); named != json.end()) {
      if (!named->is_object()) return wrong("\"properties\" is an object of schemas");
      for (const auto& [name, value] : named->items()) part.named.emplace(name, below("properties", name, value));
    }
    if (const auto rest = json.find("additionalProperties"); rest != json.end())
      part.rest = below("additionalProperties", *rest);
    facts_.properties.push_back(std::move(part));
    return {};
  }

  const Schema& schema_;
  const std::vector<const Json*>& chain_;
  std::span<const SchemaRoot> roots_;
  TextAutomata& automata_;
  SchemaFacts& facts_;
  Schemas& one_of_;
};

}  // namespace

Result<std::shared_ptr<const Dfa>> TextAutomata::pattern(const std::string& pattern) {
  auto& dfa = patterns_[pattern];
  if (!dfa) dfa = std::make_shared<const Dfa>(TRY(compile_pattern(pattern, work_)));
  return dfa;
}

Result<std::shared_ptr<const Dfa>> TextAutomata::format(const std::string& name) {
  auto& dfa = formats_[name];
  if (!dfa) dfa = std::make_shared<const Dfa>(TRY(compile_format(name)));
  return dfa;
}

Status read_schema(const Pending& pending, std::span<const SchemaRoot> roots, TextAutomata& automata,
                   SchemaFacts& facts, Schemas& one_of) {
  return Reader(pending, roots, automata, facts, one_of).run();
}

std::string canonical(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 1e15) return std::to_string(static_cast<int64_t>(number));
  }
  if (value.is_array()) {
    std::string out = "[";
    for (const Json& item : value) out += (out.size() > 1 ? "," : "") + canonical(item);
    return out.append("]");
  }
  if (value.is_object()) {
    std::map<std::string, std::string> members;
    for (const auto& [key, member] : value.items()) members.emplace(dump_json(Json(key)), canonical(member));
    std::string out = "{";
    for (const auto& [key, member] : members) out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", key, member);
    return out.append("}");
  }
  return dump_json(value);
}

}  // namespace tandem::model::constraint
