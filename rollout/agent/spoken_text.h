// What of a growing message can be shown: whole characters, and nothing of its calls.
//
// Thread safety: none; one owner.
#pragma once

#include <string>
#include <string_view>

namespace tandem::rollout {

class SpokenText {
 public:
  // `message`: all of it so far, of which only the end may still change. The next piece to show, perhaps empty.
  std::string grow(std::string_view message);

 private:
  size_t shown_ = 0;
};

}  // namespace tandem::rollout
