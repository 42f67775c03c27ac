// A call of Hermes: its closing tag may stand inside of a string, so the JSON says first where it ends.
#include <algorithm>

#include "model/tool_dialects/json_call_scanner.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kHermesScannerNone = std::string_view::npos;

class HermesScanner : public JsonCallScanner {
 public:
  HermesScanner() : JsonCallScanner({"arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    constexpr std::string_view kOpen = kToolCall, kClose = kToolCallEnd;
    if (text.starts_with(kClose)) return kClose.size();  // of a call without an opening tag
    const size_t begin = text.find_first_not_of(" \t\r\n", kOpen.size());
    if (begin == kHermesScannerNone) return std::nullopt;
    if (text[begin] == '{' || text[begin] == '[') {
      const auto end = watch(text, begin);
      if (!end) return std::nullopt;
      const size_t close = text.find_first_not_of(" \t\r\n", *end);
      if (close == kHermesScannerNone ||
          (text.size() - close < kClose.size() && kClose.starts_with(text.substr(close))))
        return std::nullopt;
      if (text.substr(close).starts_with(kClose)) return close + kClose.size();
      if (text.size() - close < kOpen.size() && kOpen.starts_with(text.substr(close))) return std::nullopt;
      if (text.substr(close).starts_with(kOpen)) return close;
    }
    from_ = std::max(from_, kOpen.size());
    const size_t close = text.find(kClose, from_);
    if (close == kHermesScannerNone) {
      from_ = std::max(from_, text.size() - held_back(text, kClose));
      return std::nullopt;
    }
    return close + kClose.size();
  }

 private:
  size_t from_ = 0;
};

}  // namespace

std::unique_ptr<CallScanner> make_hermes_scanner() { return std::make_unique<HermesScanner>(); }

}  // namespace tandem::model
