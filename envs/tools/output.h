// Tool output for models: bounded while it streams, always printable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::envs {

// Keeps the head and the tail of a stream within `limit` bytes; memory use is bounded however much is appended.
class BoundedOutput {
 public:
  explicit BoundedOutput(size_t limit) : limit_(limit) {}
  void append(std::string_view bytes);
  bool truncated() const { return total_ > limit_; }
  std::string text() const;  // with a line that marks the cut, where there is one

 private:
  size_t limit_;
  uint64_t total_ = 0;
  std::string head_;
  std::string tail_;  // up to twice what is shown of it, so that appending stays cheap
};

// `text` within `limit` bytes, cut in the middle at line ends where some are near.
std::string bound_output(std::string_view text, size_t limit, bool& truncated);

// The length of the valid UTF-8 sequence at the start of `bytes`, which are some; 0 where there is none.
size_t utf8_length(std::string_view bytes);

// The final text on a terminal after a program's output: overwritten text (\r, backspace) is removed, and neither
// titles (OSC) nor bells are there. Its line ends stay.
std::string as_on_terminal(std::string_view bytes);

// Valid UTF-8 with line ends \n: broken sequences and control characters become U+FFFD, colour codes go.
std::string make_printable(std::string_view bytes);

// Output of a foreign program for a log or a terminal: make_printable() on one line, its middle cut out beyond 600
// bytes.
std::string quotable(std::string_view bytes);
// The same of the message of an error that quotes one; code and hint stay.
Status quotable(const Status& status);

}  // namespace tandem::envs
