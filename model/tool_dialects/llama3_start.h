// Whether a text of Llama 3 that begins with a brace is a call or content.
//
// Llama has no mark of its own for calls, and answers in JSON begin with a brace too. A call has a name and arguments
// and nothing else, and its name is one of a tool that was offered; where that is not known, it has arguments.
#pragma once

#include <string_view>

#include "model/tool_dialects/object_watch.h"
#include "model/tool_dialects/offered_tools.h"

namespace tandem::model {

enum class BraceForm : uint8_t { kUndecided, kCall, kText };

// `object` has been advanced over `text`, in which it begins. `whole`: nothing follows; then it is decided.
BraceForm form_of_brace(const ObjectWatch& object, std::string_view text, const OfferedTools& offered, bool whole);

}  // namespace tandem::model
