// One call as it is being written: where it ends, once that is certain, and until then its name and arguments so far.
//
// A scanner looks at each byte of a call once, but for those that may be the beginning of a mark. It never judges: when
// the call is over, the dialect's parser reads it whole.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tool_dialect.h"

namespace tandem::model {

class OfferedTools;

class CallScanner {
 public:
  virtual ~CallScanner() = default;
  // `text`: from the call's opening mark on, as far as it goes; what was there before is the same. The length of the
  // call where that is certain.
  virtual std::optional<size_t> advance(std::string_view text) = 0;

  const std::optional<std::string>& name() const { return name_; }
  // JSON of an object, as far as it is certain.
  const std::string& arguments() const { return arguments_; }

 protected:
  std::optional<std::string> name_;
  std::string arguments_;
};

// Marks that may begin calls, or malformed calls, in the text of a dialect. Llama's also begin where the text does,
// with a brace.
std::vector<std::string_view> opening_marks(ToolDialect dialect);
std::unique_ptr<CallScanner> make_call_scanner(ToolDialect dialect, std::shared_ptr<const OfferedTools> offered);

// How many bytes at the end of a text may be the beginning of a mark.
size_t held_back(std::string_view text, std::string_view mark);

}  // namespace tandem::model
