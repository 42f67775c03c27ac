#include "model/tool_dialects/marked_calls.h"

#include <algorithm>

namespace tandem::model {

size_t end_of_marked_call(std::string_view text, size_t body, const CallMarks& marks) {
  const size_t first = text.find(marks.end, body);
  const size_t brace = text.find('{', body);
  if (first == std::string_view::npos || brace > first) return first;
  const size_t json_end = end_of_json(text, brace);
  if (json_end == std::string_view::npos || json_end <= first) return first;
  // A mark in a string of the JSON is no end, where one stands behind the JSON.
  const size_t behind = std::min(text.find_first_not_of(" \t\r\n`", json_end), text.size());
  return text.substr(behind).starts_with(marks.end) ? behind : first;
}

size_t end_of_stray_call(std::string_view text, size_t begin, const CallMarks& marks) {
  const size_t end = text.find(marks.end, begin), next = text.find(marks.begin, begin);
  if (end < next) return end + marks.end.size();
  return std::min(next, text.size());
}

}  // namespace tandem::model
