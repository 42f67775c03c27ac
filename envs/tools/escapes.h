// Sequences by which programs steer a terminal.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::envs {

struct Escape {
  size_t length = 0;            // 0 where there is none
  char final = 0;               // of a control sequence, what it does ("\x1b[2K" is K); else 0
  std::string_view parameters;  // "2"
};

// At the start of `bytes`: a control sequence ("\x1b[31m"), one that sets a title or a link or brings an image
// ("\x1b]0;title\a", with all that it carries), or a short one ("\x1b(B"). One that the end of the text cuts is one.
Escape escape_at(std::string_view bytes);

// The length of a control sequence alone, colours among them; 0 where there is none.
size_t control_sequence_length(std::string_view bytes);

}  // namespace tandem::envs
