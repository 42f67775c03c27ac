// Message contents as lists of parts, as other servers stream them: texts and reasoning.
//
// Thread safety: values.
#pragma once

#include <string>

#include "base/json.h"

namespace tandem::rollout {

struct SaidParts {
  std::string text, thinking;
};

// Text and reasoning of a content, which is a string or a list of parts. Parts of other kinds count only if they have a
// "text".
SaidParts said_parts(const Json& content);

// Collects the parts of a streamed content. A part that continues the previous one is joined to it.
class ContentParts {
 public:
  void add(const Json& piece);
  Json finish() &&;  // a list

 private:
  void end_text();
  Json parts_ = Json::array();
  std::string text_;  // behind those
};

// Whether the parts can be replaced by a string without loss.
bool are_plain_text(const Json& parts);

// Replaces all texts in the parts by `text`, after parts of other kinds.
void replace_text(const std::string& text, Json& parts);

}  // namespace tandem::rollout
