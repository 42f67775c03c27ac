// Finds the first stop text in a text that comes in pieces.
//
// Pure; thread safety: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::serve {

class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns text that certainly precedes any stop text. An end that may begin one is held back.
  std::string push(std::string_view piece);
  // The rest, where none was found.
  std::string finish();
  // The one that was found; nothing may be pushed then. Empty: none.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_, found_;
};

}  // namespace tandem::serve
