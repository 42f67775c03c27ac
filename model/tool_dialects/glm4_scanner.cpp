// A call of GLM-4.5, tag by tag.
#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/scanners.h"
#include "model/tool_dialects/text_values_scanner.h"

namespace tandem::model {

namespace {

constexpr auto kNone = std::string_view::npos;

class GlmScanner : public TextValuesScanner {
 public:
  std::optional<size_t> advance(std::string_view text) override {
    while (!end_ && step(text)) {
    }
    return end_;
  }

 private:
  enum Phase : uint8_t { kName, kBetween, kKey, kBeforeValue, kValue, kOver };

  bool step(std::string_view text) {
    constexpr std::string_view kKeyOpen = "<arg_key>", kKeyEnd = "</arg_key>", kValueOpen = "<arg_value>",
                               kValueEnd = "</arg_value>";
    if (phase_ == kOver) return false;
    if (phase_ == kName) {
      const size_t end = std::min({text.find('\n', at_), text.find(kKeyOpen, at_), text.find(kToolCallEnd, at_)});
      if (end == kNone) {
        if (text.size() - at_ > kMaxScannedName) phase_ = kOver;
        return false;
      }
      const auto name = trim(text.substr(at_, end - at_));
      at_ = end;
      phase_ = name.empty() || name.find('<') != kNone ? kOver : kBetween;
      if (phase_ == kBetween) name_ = std::string(name);
      return true;
    }
    if (phase_ == kBetween || phase_ == kBeforeValue) {
      const size_t begin = text.find_first_not_of(" \t\r\n", at_);
      if (begin == kNone) return false;
      const auto rest = text.substr(begin);
      const auto wanted = phase_ == kBetween ? kKeyOpen : kValueOpen;
      if (rest.starts_with(wanted)) {
        at_ = begin + wanted.size();
        phase_ = phase_ == kBetween ? kKey : kValue;
        return true;
      }
      if (phase_ == kBetween && rest.starts_with(kToolCallEnd)) {
        end_arguments();
        end_ = begin + kToolCallEnd.size();
        return false;
      }
      const bool undecided =
          (rest.size() < wanted.size() && wanted.starts_with(rest)) ||
          (phase_ == kBetween && rest.size() < kToolCallEnd.size() && kToolCallEnd.starts_with(rest));
      if (!undecided) phase_ = kOver;
      return false;
    }
    const auto mark = phase_ == kKey ? kKeyEnd : kValueEnd;
    const size_t end = text.find(mark, at_);
    if (phase_ == kKey) {
      if (end == kNone) return false;
      const std::string key(trim(text.substr(at_, end - at_)));
      at_ = end + mark.size();
      const bool twice = std::find(keys_.begin(), keys_.end(), key) != keys_.end();
      phase_ = twice ? kOver : kBeforeValue;
      if (twice) return false;
      keys_.push_back(key);
      begin_value(key);
      return true;
    }
    const size_t to = end != kNone ? end : text.size() - held_back(text.substr(at_), mark);
    add_to_value(text.substr(at_, to - at_));
    at_ = to;
    if (end == kNone) return false;
    end_value();
    at_ = end + mark.size();
    phase_ = kBetween;
    return true;
  }

  Phase phase_ = kName;
  size_t at_ = kToolCall.size();
  std::vector<std::string> keys_;
  std::optional<size_t> end_;
};

}  // namespace

std::unique_ptr<CallScanner> make_glm4_scanner() { return std::make_unique<GlmScanner>(); }

}  // namespace tandem::model
