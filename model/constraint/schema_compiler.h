// JSON Schema as a grammar.
//
// Schemas that apply together (allOf, $ref beside keywords, properties of several branches) become one conjunction, and
// anyOf and oneOf as the alternatives of its value. Each distinct conjunction becomes one node, so recursion ends.
// Bounded: kMaxNodes nodes, kMaxAlternatives of one value, kMaxReadings schemas read in all.
#pragma once

#include <span>

#include "base/json.h"
#include "model/constraint/grammar.h"

namespace tandem::model::constraint {

inline constexpr size_t kMaxNodes = 20'000;
inline constexpr size_t kMaxAlternatives = 256;
inline constexpr size_t kMaxReadings = 200'000;

// The node of the schema becomes the root. `roots` are schemas within it whose $ref begin at them. kInvalid names the
// place and the keyword that is wrong or not implemented; kExhausted what is too large. `entries` are schemas within it
// whose nodes become those of the grammar; of them, unlike of the root, there may be no value.
Result<Grammar> compile_schema(const Json& schema, std::span<const Json::json_pointer> roots = {},
                               std::span<const Json::json_pointer> entries = {});

}  // namespace tandem::model::constraint
