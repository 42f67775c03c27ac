// What of a growing message can be shown: whole characters, and nothing of its calls.
//
// Thread safety: none; one owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/tool_stream.h"

namespace tandem::rollout {

class SpokenText {
 public:
  // Calls are those that prompts ask for, and those of the model's own dialect.
  explicit SpokenText(model::ToolDialect own = model::ToolDialect::kHermes);

  // `message`: all of it so far, of which only the end may still change. The next piece to show, perhaps empty.
  std::string grow(std::string_view message);

 private:
  std::vector<model::ToolStream> streams_;  // what one tells as text is read by the next
  size_t read_ = 0;
};

}  // namespace tandem::rollout
