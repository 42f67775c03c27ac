// Validates values against a foreign JSON Schema.
//
// Checked are type, enum, const, the bounds of numbers, texts, lists and objects, properties, required,
// additionalProperties, items, prefixItems, allOf, anyOf, oneOf and $ref within the schema. What is not known here
// (patterns, formats, conditions) is left to who wrote it: a value that passes may still be refused there, one that is
// refused here would not have passed. Source: JSON Schema 2020-12.
#pragma once

#include <string>

#include "base/json.h"

namespace tandem::envs {

// The first violation of the schema by `value`, in words for a model ("argument \"days\" must be at most 7"); empty
// where nothing is. The work is bounded whatever the schema is; a schema beyond the bound passes everything.
std::string check_by_schema(const Json& schema, const Json& value);

}  // namespace tandem::envs
