// JSON as a line of JSON Lines.
#pragma once

#include <string>

#include "base/json.h"

namespace tandem {

// As dump_json, with the line and paragraph separators of Unicode (U+2028, U+2029) and U+0085 written as escapes: many
// readers take these for the end of a line. Without a line end.
std::string dump_json_line(const Json& value);

}  // namespace tandem
