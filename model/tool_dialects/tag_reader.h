// The base of readers of calls in tags: a call is read part by part while it is written, and the same reader, given the
// whole text, is the dialect's parser.
#pragma once

#include <memory>
#include <optional>

#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/offered_tools.h"
#include "model/tool_dialects/text_values_scanner.h"

namespace tandem::model {

class TagReader : public TextValuesScanner {
 public:
  explicit TagReader(std::shared_ptr<const OfferedTools> offered) : offered_(std::move(offered)) {}

  std::optional<size_t> advance(std::string_view text) override { return read(text, false); }
  // `whole`: nothing follows `text`. Then the end is always told.
  std::optional<size_t> read(std::string_view text, bool whole) {
    while (!end_ && step(text, whole)) {
    }
    return end_;
  }
  // Once the end is told.
  Result<ToolCall> take() { return error_ ? Result<ToolCall>(fail(*error_)) : std::move(call_); }

 protected:
  // One part further; false where that needs more of the text, or the end is told.
  virtual bool step(std::string_view text, bool whole) = 0;

  // Whether `rest` may still become what begins with `mark`.
  static bool may_become(std::string_view rest, std::string_view mark, bool whole) {
    return !whole && rest.size() < mark.size() && mark.starts_with(rest);
  }
  void begin_argument(const std::string& key) {
    key_ = key;
    begin_value(key);
  }
  void add_text(std::string_view part) {
    value_ += part;
    add_to_value(part);
  }
  void end_argument() {
    end_value();
    call_.arguments[key_] = std::exchange(value_, {});
  }

  std::shared_ptr<const OfferedTools> offered_;
  size_t at_ = 0;    // all before it is read
  size_t scan_ = 0;  // of a value: no mark begins before it
  std::optional<size_t> end_;
  std::optional<Status> error_;
  ToolCall call_;
  std::string key_;  // of the argument that is read

 private:
  std::string value_;
};

}  // namespace tandem::model
