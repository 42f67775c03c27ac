// Arguments of dialects that write each between tags: strings as they stand, all else as JSON.
//
// A text is told from JSON as give_types does it when a call is read: where a schema says that a value is of other
// types beside strings, texts that could be meant as one of them are not let through as strings.
#pragma once

#include "model/constraint/dialects/call_parts.h"

namespace tandem::model::constraint {

struct TextForm {
  ToolDialect dialect;
  std::vector<std::string_view> tags;  // that no text has, as the parser would take them for the end
};

// The rules of each tool's arguments, of which one holds; their properties' nodes are texts or JSON. A tool may
// have none, not all do. Parameters that are not described, or whose names the dialect cannot write, are never given.
Result<std::vector<std::vector<uint32_t>>> text_arguments(Grammar& grammar, const TextForm& form,
                                                          const std::vector<OfferedTool>& tools);

}  // namespace tandem::model::constraint
