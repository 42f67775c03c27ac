// What of a growing message can be shown: whole characters, and nothing of its calls.
//
// Thread safety: none; one owner.
#pragma once

#include <string>
#include <string_view>

#include "model/tool_stream.h"

namespace tandem::rollout {

class SpokenText {
 public:
  explicit SpokenText(model::ToolDialect dialect = model::ToolDialect::kHermes) : stream_(dialect) {}

  // `message`: all of it so far, of which only the end may still change. The next piece to show, perhaps empty.
  std::string grow(std::string_view message);

 private:
  model::ToolStream stream_;
  size_t read_ = 0;
};

}  // namespace tandem::rollout
