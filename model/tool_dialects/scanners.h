// The scanners of the dialects, a file each beside the dialect.
#pragma once

#include "model/tool_dialects/call_scanner.h"
#include "model/tool_dialects/marked_calls.h"
#include "model/tool_dialects/offered_tools.h"

namespace tandem::model {

// A name that is longer is told when its call is over: looking for its end again and again would cost too much.
inline constexpr size_t kMaxScannedName = 4096;

std::unique_ptr<CallScanner> make_hermes_scanner();
std::unique_ptr<CallScanner> make_llama3_scanner();
std::unique_ptr<CallScanner> make_mistral_scanner();

// Where the name of a call between marks stands: before the mark in the middle, alone or, of Kimi's, within an id; of
// DeepSeek V3's also behind it, before the fence of the JSON.
enum class NamePlace : uint8_t { kAloneOrFenced, kWithinId };
// `marks` must outlive the scanner.
std::unique_ptr<CallScanner> make_marked_scanner(const CallMarks& marks, NamePlace name,
                                                 std::shared_ptr<const OfferedTools> offered);

}  // namespace tandem::model
