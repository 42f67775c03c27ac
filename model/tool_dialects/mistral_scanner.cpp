// A call of Mistral: it is over where its JSON is.
#include "base/text.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/json_call_scanner.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/parts.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

class MistralScanner : public JsonCallScanner {
 public:
  MistralScanner() : JsonCallScanner({"arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    constexpr size_t kInner = kMistralCalls.size();
    if (text.starts_with(kMistralArguments)) {  // of a call without its beginning
      if (!object_) object_.emplace(text.find('{'));
      return object_->advance(text);
    }
    if (!json_) {
      const MistralBody body = mistral_body(text, kInner, false);
      if (body.undecided) return std::nullopt;
      if (body.json == std::string_view::npos) return text.find(kMistralCalls, kInner);
      json_ = body.json;
      const auto head = text.substr(kInner, *json_ - kInner);
      in_list_ = trim(head).empty();
      const auto name = unquoted(head.substr(0, std::min(head.find(kMistralId), head.find(kMistralArguments))));
      if (!in_list_ && !name.empty()) name_ = std::string(name);
    }
    if (in_list_ && text[*json_] == '{') return watch(text, *json_);
    if (in_list_) return follow_list(text);
    if (!object_) object_.emplace(*json_);
    const auto end = object_->advance(text);
    const size_t known = end.value_or(text.size());
    if (text[*json_] == '{' && name_ && known > *json_ + arguments_.size())
      arguments_.append(text.substr(*json_ + arguments_.size(), known - *json_ - arguments_.size()));
    return end;
  }

 private:
  // The first call of a list is told while it is written, the others when the list is over.
  std::optional<size_t> follow_list(std::string_view text) {
    if (!object_) object_.emplace(*json_);
    if (!first_) {
      const size_t begin = text.find_first_not_of(" \t\r\n", *json_ + 1);
      if (begin != std::string_view::npos) first_ = begin;
    }
    if (first_ && text[*first_] == '{') watch(text, *first_);
    return object_->advance(text);
  }

  std::optional<size_t> json_, first_;
  bool in_list_ = false;
  std::optional<ObjectWatch> object_;
};

}  // namespace

std::unique_ptr<CallScanner> make_mistral_scanner() { return std::make_unique<MistralScanner>(); }

}  // namespace tandem::model
