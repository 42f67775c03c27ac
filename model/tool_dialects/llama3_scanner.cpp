// A call of Llama: it is over where its JSON is.
#include "model/tool_dialects/json_call_scanner.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kNone = std::string_view::npos;

class LlamaScanner : public JsonCallScanner {
 public:
  LlamaScanner() : JsonCallScanner({"parameters", "arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    if (begin_ < text.size()) begin_ = text.find_first_not_of(" \t\r\n;", begin_);
    if (begin_ == kNone) begin_ = text.size();
    if (begin_ >= text.size() || text[begin_] != '{') return std::nullopt;
    return watch(text, begin_);
  }

 private:
  size_t begin_ = 0;
};

}  // namespace

std::unique_ptr<CallScanner> make_llama3_scanner() { return std::make_unique<LlamaScanner>(); }

}  // namespace tandem::model
