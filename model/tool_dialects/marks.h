// The marks that dialects write, for those who read them whole and those who read them as they come.
#pragma once

#include "model/tool_dialects/marked_calls.h"

namespace tandem::model {

// The content at a mark that may begin a call.
enum class CallMark : uint8_t { kCall, kText, kUndecided };

inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";
inline constexpr std::string_view kCoderFunction = "<function=", kCoderParameter = "<parameter=";
inline constexpr std::string_view kGlmKey = "<arg_key>", kGlmValueEnd = "</arg_value>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kMistralArguments = "[ARGS]";
inline constexpr std::string_view kMistralId = "[CALL_ID]";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr CallMarks kDeepseekMarks = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                             "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};
inline constexpr CallMarks kKimiMarks = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>",
                                         "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                                         "<|tool_calls_section_end|>"};

}  // namespace tandem::model
