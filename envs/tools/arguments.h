// Checks the arguments of a call against the tool's JSON Schema, with errors written for a model.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace tandem::envs {

// The mistakes in `arguments` with their corrections, or empty. Knows the parts of JSON Schema that the tools use:
// objects with `properties` and `required`, arrays with `items` and `minItems`, strings, integers, numbers and booleans
// with `enum` and `minimum`.
std::string check_arguments(std::string_view tool, const Json& schema, const Json& arguments);

// Arguments that fit the schema, with integers that were written as 2.0 as such.
Json with_integers(const Json& schema, const Json& arguments);

}  // namespace tandem::envs
