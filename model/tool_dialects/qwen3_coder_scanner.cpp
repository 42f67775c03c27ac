// A call of Qwen3-Coder, tag by tag.
#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/scanners.h"
#include "model/tool_dialects/text_values_scanner.h"

namespace tandem::model {

namespace {

constexpr auto kQwen3CoderScannerNone = std::string_view::npos;

class CoderScanner : public TextValuesScanner {
 public:
  std::optional<size_t> advance(std::string_view text) override {
    // The end is that of the parser: the first closing tag behind the first end of a function.
    if (!function_end_) function_end_ = find(text, "</function>", kToolCall.size());
    const auto close = function_end_ ? find(text, kToolCallEnd, *function_end_) : std::nullopt;
    while (step(text.substr(0, close.value_or(text.size())))) {
    }
    if (!close) return std::nullopt;
    return *close + kToolCallEnd.size();
  }

 private:
  enum Phase : uint8_t { kFunction, kName, kBetween, kKey, kValue, kOver };

  std::optional<size_t> find(std::string_view text, std::string_view mark, size_t from) {
    searched_ = std::max(searched_, from);
    const size_t at = text.find(mark, searched_);
    if (at == kQwen3CoderScannerNone) {
      searched_ = std::max(searched_, text.size() - held_back(text, mark));
      return std::nullopt;
    }
    searched_ = at;
    return at;
  }

  // One part further; false where that needs more of the text, or there are no more parts.
  bool step(std::string_view text) {
    constexpr std::string_view kFunctionOpen = "<function=", kFunctionEnd = "</function>",
                               kParameter = "<parameter=", kParameterEnd = "</parameter>";
    if (phase_ == kOver || text.size() <= at_) return false;
    if (phase_ == kFunction || phase_ == kBetween) {
      const size_t begin = text.find_first_not_of(" \t\r\n", at_);
      if (begin == kQwen3CoderScannerNone) return false;
      const auto rest = text.substr(begin);
      const auto wanted = phase_ == kFunction ? kFunctionOpen : kParameter;
      if (rest.size() < wanted.size() && wanted.starts_with(rest)) return false;
      if (rest.starts_with(wanted)) {
        at_ = begin + wanted.size();
        phase_ = phase_ == kFunction ? kName : kKey;
        return true;
      }
      if (phase_ == kBetween && rest.size() < kFunctionEnd.size() && kFunctionEnd.starts_with(rest)) return false;
      if (phase_ == kBetween && rest.starts_with(kFunctionEnd)) end_arguments();
      phase_ = kOver;
      return false;
    }
    if (phase_ == kName || phase_ == kKey) {
      const size_t end = text.find('>', at_);
      if (end == kQwen3CoderScannerNone) {
        if (text.size() - at_ > kMaxScannedName) phase_ = kOver;
        return false;
      }
      const auto word = trim(text.substr(at_, end - at_));
      at_ = end + 1;
      if (word.empty() && phase_ == kName) {
        phase_ = kOver;
        return false;
      }
      if (phase_ == kName)
        name_ = std::string(word);
      else
        begin_value(word);
      phase_ = phase_ == kName ? kBetween : kValue;
      value_begins_ = true;
      return true;
    }
    // A line end at each end of a value is not part of it.
    if (value_begins_ && text[at_] == '\n') ++at_;
    value_begins_ = false;
    const size_t end = text.find(kParameterEnd, at_);
    size_t to = end != kQwen3CoderScannerNone ? end : text.size() - held_back(text.substr(at_), kParameterEnd);
    const bool line_end = to > at_ && text[to - 1] == '\n';
    if (line_end) --to;
    add_to_value(text.substr(at_, to - at_));
    at_ = to;
    if (end == kQwen3CoderScannerNone) return false;
    end_value();
    at_ = end + kParameterEnd.size();
    phase_ = kBetween;
    return true;
  }

  Phase phase_ = kFunction;
  size_t at_ = kToolCall.size(), searched_ = 0;
  bool value_begins_ = false;
  std::optional<size_t> function_end_;
};

}  // namespace

std::unique_ptr<CallScanner> make_qwen3_coder_scanner() { return std::make_unique<CoderScanner>(); }

}  // namespace tandem::model
