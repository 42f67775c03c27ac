// Keywords of a conjunction of JSON Schemas about a value, before it becomes nodes of a grammar.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/constraint/decimal.h"
#include "model/constraint/string_state.h"

namespace tandem::model::constraint {

// A schema that $ref points into: the whole text, or that of one tool's parameters.
struct SchemaRoot {
  const Json* json = nullptr;
  std::string place;
};

// A schema and where it stands, as a JSON Pointer into the whole text.
struct Schema {
  const Json* json = nullptr;
  std::string place;
  const SchemaRoot* root = nullptr;
};
using Schemas = std::vector<Schema>;

// The schemas that led to a schema that was reached by $ref.
struct Pending {
  Schema schema;
  std::vector<const Json*> chain;
};

enum TypeBit : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kText = 16, kArray = 32, kObject = 64 };
inline constexpr uint8_t kAllTypes = 127;

struct SchemaFacts {
  uint8_t types = kAllTypes;
  std::optional<std::vector<Json>> values;  // of enum and const
  NumberRules numbers;
  uint32_t min_length = 0, max_length = kUnlimited;
  std::vector<std::shared_ptr<const Dfa>> texts;
  uint32_t min_items = 0, max_items = kUnlimited;
  struct ItemsPart {
    Schemas prefix;
    std::optional<Schema> rest;
  };
  std::vector<ItemsPart> items;
  uint32_t min_properties = 0, max_properties = kUnlimited;
  struct PropertiesPart {
    std::map<std::string, Schema> named;
    std::optional<Schema> rest;
  };
  std::vector<PropertiesPart> properties;
  std::set<std::string> required;

  std::vector<Pending> pending;               // that hold too, and are still to be read
  std::vector<std::vector<Pending>> choices;  // of each one holds
};

// Automata by pattern and by format, each made once. All patterns together have the work that one may take.
class TextAutomata {
 public:
  Result<std::shared_ptr<const Dfa>> pattern(const std::string& pattern);
  Result<std::shared_ptr<const Dfa>> format(const std::string& name);

 private:
  std::map<std::string, std::shared_ptr<const Dfa>> patterns_, formats_;
  size_t work_ = 20'000'000;
};

// Adds what one schema says. `roots` are those below which a schema may lie; `one_of` gets the places of oneOf.
// kInvalid names the keyword and its place.
Status read_schema(const Pending& pending, std::span<const SchemaRoot> roots, TextAutomata& automata,
                   SchemaFacts& facts, Schemas& one_of);

// Equal for values that JSON Schema calls equal: keys in order, whole numbers without fraction.
std::string canonical(const Json& value);

}  // namespace tandem::model::constraint
