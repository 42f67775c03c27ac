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

// Splits bytes into lines. A line that is too long keeps its first limit + 1 bytes, which show that, and the last
// kLineEnd. Empty lines are passed over.
class LineSplitter {
 public:
  explicit LineSplitter(size_t limit) : limit_(limit) {}
  void append(std::string_view bytes);
  std::optional<std::string> next();

 private:
  static constexpr size_t kLineEnd = 512;
  const size_t limit_;
  std::string line_;  // whose end has not come yet
  std::string end_;   // of one that is too long: the last that came
  std::deque<std::string> lines_;
};

}  // namespace tandem::envs
