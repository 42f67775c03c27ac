// The formats of strings that schemas of tools use, each as a regular expression.
#pragma once

#include <span>
#include <string_view>

#include "model/constraint/dfa.h"

namespace tandem::model::constraint {

std::span<const std::string_view> format_names();
// kNotFound names the formats that there are.
Result<Dfa> compile_format(std::string_view name);

}  // namespace tandem::model::constraint
