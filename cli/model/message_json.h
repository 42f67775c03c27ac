// A message that was read out of a model's text, in OpenAI's format.
#pragma once

#include "base/json.h"
#include "model/tool_dialect.h"

namespace tandem::cli {

// {"role", "content"} with "reasoning" and "tool_calls" where there are some. A call without an id gets one by its
// place.
Json message_json(const model::ParsedMessage& parsed);

}  // namespace tandem::cli
