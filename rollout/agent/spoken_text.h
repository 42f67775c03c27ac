// The part of a growing message that can be shown: whole characters, without reasoning and calls.
//
// Thread safety: none; one owner.
#pragma once

#include <string>
#include <string_view>

#include "model/message_format.h"

namespace tandem::rollout {

class SpokenText {
 public:
  // `tools`: those that were offered, as parse_message takes them.
  explicit SpokenText(const model::MessageFormat& format = {}, Json tools = Json())
      : stream_(format, std::move(tools)) {}

  // `message`: all of it so far, of which only the end may still change. The next piece to show, perhaps empty.
  std::string grow(std::string_view message);

 private:
  model::MessageStream stream_;
  size_t read_ = 0;
};

}  // namespace tandem::rollout
