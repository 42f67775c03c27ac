// Python's two ways to put values into a text: "{} {name:>5}".format(..) and "%s %05.1f" % (..).
#pragma once

#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

// TemplateError with Python's words where values are missing, and by name where a notation is not supported.
std::string format_braces(std::string_view text, const Arguments& arguments);
// `values`: a tuple, a dict, or one value.
std::string format_percent(std::string_view text, const Value& values);

}  // namespace tandem::model::jinja
