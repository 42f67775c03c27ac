// Splits a byte stream into lines of bounded length.
//
// Thread safety: none; one owner.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::envs {

// No more than limit + 1 bytes of a line are kept: whoever reads it sees that it is too
// long. Empty lines are passed over.
class LineSplitter {
 public:
  explicit LineSplitter(size_t limit) : limit_(limit) {}
  void append(std::string_view bytes);
  std::optional<std::string> next();

 private:
  const size_t limit_;
  std::string line_;  // whose end has not come yet
  std::deque<std::string> lines_;
};

}  // namespace tandem::envs
