// Tokenizer and chat template of a model directory; either may be missing.
//
// Thread safety: const methods from any thread.
#pragma once

#include <optional>

#include "base/digest.h"
#include "model/chat_template.h"
#include "model/message_format.h"
#include "model/tokenizer.h"

namespace tandem::serve {

struct TextSide {
  std::optional<model::Tokenizer> tokenizer;
  std::optional<model::ChatTemplate> chat_template;
  // The text of a special token within a message is text, so that nothing that a model reads can forge a turn.
  model::SpecialInContent special_in_content = model::SpecialInContent::kText;
  // Of both: sides of equal digests read the same tokens as the same text, and as the same parts of a chat.
  Digest digest;

  static Result<TextSide> load(const fs::path& directory);

  const model::Tokenizer* tokenizer_or_null() const { return tokenizer ? &*tokenizer : nullptr; }
  // Messages and tools (an array, or null) by the template. kInvalid where there is none.
  Result<model::RenderedIds> render(const Json& messages, const Json& tools, model::RenderOptions options) const;
  // The format of the answer to a chat that was rendered as `prompt`. Call only where there is a template.
  model::MessageFormat format(bool with_tools, std::string_view prompt) const;
};

}  // namespace tandem::serve
