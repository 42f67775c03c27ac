// Filters over texts and markup, as jinja2 has them. Each takes the filtered value and the filter's arguments.
//
// TemplateError for arguments that a filter does not have, and by name for what is not supported.
#pragma once

#include "model/jinja/value.h"

namespace tandem::model::jinja {

// The same text, with the five marks of HTML escaped, as markup; what was markup is escaped again.
Value force_escape(const Value& value, const Arguments& arguments);
// Without tags and comments, white space as single spaces, entities as characters.
Value strip_tags(const Value& value, const Arguments& arguments);
// A text, or a mapping or list of pairs as a query.
Value url_encode(const Value& value, const Arguments& arguments);
// A mapping as attributes of a tag.
Value xml_attributes(const Value& value, const Arguments& arguments);
// "13.0 kB" of a number of bytes.
Value file_size(const Value& value, const Arguments& arguments);
Value truncate(const Value& value, const Arguments& arguments);
// Python's pprint of a value that fits on one line.
Value pretty(const Value& value, const Arguments& arguments);

}  // namespace tandem::model::jinja
