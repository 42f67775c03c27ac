// Whether the constraints of a JSON Schema are written as they must be: a text as `minimum` or a bool as
// `exclusiveMaximum` would hold for any value, in silence.
//
// Every part that values can be judged by is looked at once: the schema, what its keywords hold, and what they refer
// to. Keywords that nobody knows are not looked into.
#pragma once

#include "base/json.h"

namespace tandem::model::constraint {

// kInvalid, with the place in the schema and the keyword.
Status check_schema_form(const Json& schema);

}  // namespace tandem::model::constraint
