// Whether a value is valid by a JSON Schema, and if not, why.
//
// Draft 2020-12, as far as a closed schema goes: `$ref` to places of the same schema, and the older `items` as a list
// with `additionalItems`. Formats are those of docs/constrained.md; other ones, and keywords that nobody knows, say
// nothing. What would be judged wrongly is refused: `$dynamicRef`, `unevaluatedProperties`, `unevaluatedItems`, a
// reference to another document, a pattern that cannot be read.
//
// Pure; thread safety: functions from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::model::constraint {

// The first violations, at most 20, each with its place: "/age: 3.5 is not of the type integer". None: it is valid.
// kInvalid where the schema itself cannot be followed.
Result<std::vector<std::string>> schema_errors(const Json& schema, const Json& value);

}  // namespace tandem::model::constraint
