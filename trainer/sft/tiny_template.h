// Chat templates of tiny models: one for each notation of tool calls, small and of our own, with the marks of the
// family.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::trainer {

struct TinyTemplate {
  std::string name;                // of the dialect; "plain": ChatML that knows no tools
  std::string source;              // Jinja
  std::vector<std::string> marks;  // special tokens, that of the end of a text first
  std::vector<std::string> ends;   // those of them that end a turn
  bool arguments_as_text = false;  // of calls
  bool one_call = false;           // in a message
};

inline constexpr std::string_view kPlainTemplate = "plain";
const TinyTemplate* find_tiny_template(std::string_view name);
std::vector<std::string> tiny_template_names();

}  // namespace tandem::trainer
