// Contents of messages that are lists of parts, as servers of others stream them: texts, and what a model thought.
//
// Thread safety: values.
#pragma once

#include <string>

#include "base/json.h"

namespace tandem::rollout {

struct SaidParts {
  std::string text, thinking;
};

// What a content says, be it a text or a list of parts; parts of other kinds say nothing unless they have a "text".
SaidParts said_parts(const Json& content);

// The parts of a content that comes in pieces. A part that goes on with the one before it is joined to that.
class ContentParts {
 public:
  void add(const Json& piece);
  Json finish() &&;  // a list

 private:
  void end_text();
  Json parts_ = Json::array();
  std::string text_;  // behind those
};

// Whether nothing is lost where a text stands for the parts.
bool are_plain_text(const Json& parts);

// Has the parts say `text` behind what is no text.
void replace_text(const std::string& text, Json& parts);

}  // namespace tandem::rollout
