// A call of Llama: it is over where its JSON is, and in Python where the text is.
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/json_call_scanner.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/python_call.h"
#include "model/tool_dialects/scanners.h"
#include "model/tool_dialects/text_values_scanner.h"

namespace tandem::model {

namespace {

class LlamaScanner : public JsonCallScanner {
 public:
  LlamaScanner() : JsonCallScanner({"parameters", "arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    behind_tag_ |= skip_to_llama_call(text, begin_);
    if (kPythonTag.starts_with(text.substr(begin_))) return std::nullopt;
    if (text[begin_] == '{') return watch(text, begin_);
    if (form_ == PythonForm::kUndecided) {
      const auto start = start_of_python(text.substr(begin_), false);
      form_ = start.form;
      if (form_ == PythonForm::kCall) name_ = std::string(start.name);
      told_ = begin_;
    }
    if (form_ == PythonForm::kCode && behind_tag_) follow_code(text);
    return std::nullopt;
  }

 private:
  // White space at the end of code is not part of it.
  void follow_code(std::string_view text) {
    name_ = std::string(kCodeTool);
    const size_t end = text.find_last_not_of(" \t\r\n") + 1;
    if (end <= told_) return;
    if (arguments_.empty()) code_.begin(kCodeArgument, arguments_);
    code_.add(text.substr(told_, end - told_), arguments_);
    told_ = end;
  }

  size_t begin_ = 0, told_ = 0;
  bool behind_tag_ = false;
  PythonForm form_ = PythonForm::kUndecided;
  TextValue code_;
};

}  // namespace

std::unique_ptr<CallScanner> make_llama3_scanner() { return std::make_unique<LlamaScanner>(); }

}  // namespace tandem::model
