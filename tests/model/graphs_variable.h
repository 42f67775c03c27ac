// TANDEM_DEVICE_GRAPHS for streams that are opened while this lives.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace tandem::model {

class GraphsVariable {
 public:
  explicit GraphsVariable(const char* value) {
    if (const char* const before = std::getenv(kName)) before_ = before;
    ::setenv(kName, value, 1);
  }
  ~GraphsVariable() {
    if (before_)
      ::setenv(kName, before_->c_str(), 1);
    else
      ::unsetenv(kName);
  }
  GraphsVariable(const GraphsVariable&) = delete;
  GraphsVariable& operator=(const GraphsVariable&) = delete;

 private:
  static constexpr const char* kName = "TANDEM_DEVICE_GRAPHS";
  std::optional<std::string> before_;
};

}  // namespace tandem::model
