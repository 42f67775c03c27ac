#include "model/tool_dialects/marked_calls.h"

#include <algorithm>

namespace tandem::model {

MarkedEnd end_of_marked_call(std::string_view text, size_t body, const CallMarks& marks) {
  const size_t first = text.find(marks.end, body), next = text.find(marks.begin, body);
  const MarkedEnd plain{.at = std::min(first, next), .missing = next < first};
  const size_t brace = text.find('{', body);
  if (brace == std::string_view::npos || brace > plain.at) return plain;
  const size_t json_end = end_of_json(text, brace);
  if (json_end == std::string_view::npos) return plain;
  // A mark in a string of the JSON is no end, where one stands behind the JSON.
  const size_t behind = std::min(text.find_first_not_of(" \t\r\n`", json_end), text.size());
  const auto rest = text.substr(behind);
  if (rest.starts_with(marks.end)) return {.at = behind};
  if (rest.starts_with(marks.begin) || rest.starts_with(marks.list_end)) return {.at = behind, .missing = true};
  return plain;
}

size_t end_of_stray_call(std::string_view text, size_t begin, const CallMarks& marks) {
  const size_t end = text.find(marks.end, begin), next = text.find(marks.begin, begin);
  if (end < next) return end + marks.end.size();
  return std::min(next, text.size());
}

}  // namespace tandem::model
