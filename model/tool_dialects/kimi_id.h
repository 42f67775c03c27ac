// The name of the tool in the id of a Kimi call: functions.NAME:NUMBER, and what models make of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/tool_dialects/offered_tools.h"

namespace tandem::model {

// Nothing where the id names no tool: there is no name in it, or, of an id of another shape, none that was offered.
std::optional<std::string> name_of_kimi_id(std::string_view id, const OfferedTools& offered);

}  // namespace tandem::model
