#include "model/tool_dialects/call_scanner.h"

#include <algorithm>

#include "model/tool_dialects/glm4_reader.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/qwen3_coder_reader.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

size_t held_back(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (mark.starts_with(text.substr(text.size() - length))) return length;
  return 0;
}

std::vector<std::string_view> opening_marks(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kHermes:
      return {kToolCall, kToolCallEnd};
    case ToolDialect::kQwen3Coder:
      return {kToolCall, kCoderFunction, kCoderParameter};
    case ToolDialect::kGlm4:
      return {kToolCall, kGlmKey, kGlmValueEnd};
    case ToolDialect::kMistral:
    case ToolDialect::kMistralV11:
      return {kMistralCalls, kMistralArguments};
    case ToolDialect::kLlama3:
      return {kPythonTag};
    case ToolDialect::kDeepseekV3:
    case ToolDialect::kDeepseekV31:
      return {kDeepseekMarks.list_begin, kDeepseekMarks.begin, kDeepseekMarks.middle, kDeepseekMarks.end};
    case ToolDialect::kKimiK2:
      return {kKimiMarks.list_begin, kKimiMarks.begin, kKimiMarks.middle, kKimiMarks.end};
  }
  return {};
}

std::unique_ptr<CallScanner> make_call_scanner(ToolDialect dialect, std::shared_ptr<const OfferedTools> offered) {
  switch (dialect) {
    case ToolDialect::kHermes:
      return make_hermes_scanner();
    case ToolDialect::kQwen3Coder:
      return std::make_unique<CoderReader>(std::move(offered));
    case ToolDialect::kGlm4:
      return std::make_unique<GlmReader>(std::move(offered));
    case ToolDialect::kLlama3:
      return make_llama3_scanner();
    case ToolDialect::kMistral:
    case ToolDialect::kMistralV11:
      return make_mistral_scanner();
    case ToolDialect::kDeepseekV3:
    case ToolDialect::kDeepseekV31:
      return make_marked_scanner(kDeepseekMarks, NamePlace::kAloneOrFenced, std::move(offered));
    case ToolDialect::kKimiK2:
      return make_marked_scanner(kKimiMarks, NamePlace::kWithinId, std::move(offered));
  }
  return nullptr;
}

}  // namespace tandem::model
