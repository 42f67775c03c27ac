// Calls between marks that are tokens of their own: a list of them, in each something before and behind a mark in the
// middle.
#pragma once

#include "model/tool_dialects/parts.h"

namespace tandem::model {

struct CallMarks {
  std::string_view list_begin, begin, middle, end, list_end;
};

// Where the call ends whose body begins at `body`: at its mark behind the JSON of the body, in whose strings there may
// be marks, or else the first one. Another call or the end of the list before it says that the mark is missing.
struct MarkedEnd {
  size_t at = std::string_view::npos;  // npos: there is none
  bool missing = false;
};
MarkedEnd end_of_marked_call(std::string_view text, size_t body, const CallMarks& marks);

// Where the end of a call stands that has no mark at its beginning, or that of the call behind it; its mark included.
size_t end_of_stray_call(std::string_view text, size_t begin, const CallMarks& marks);

// `read(head, body)`: the call out of what stands before and behind the middle. The marks of the list may be missing.
template <typename Read>
ParsedMessage parse_marked_calls(std::string_view text, const CallMarks& marks, const Read& read) {
  constexpr auto kNone = std::string_view::npos;
  Collector collector(text);
  size_t from = 0;
  const auto skip = [&](std::string_view mark) {
    const size_t at = text.find_first_not_of(" \t\r\n", from);
    if (at == kNone || !text.substr(at).starts_with(mark)) return false;
    from = at + mark.size();
    return true;
  };
  for (;;) {
    const size_t call = text.find(marks.begin, from);
    const size_t stray = std::min(text.find(marks.middle, from), text.find(marks.end, from));
    if (call == kNone && stray == kNone) break;
    size_t begin = std::min(call, stray);
    if (const size_t list = text.find(marks.list_begin, from); list < begin) begin = list;
    if (stray < call) {
      from = end_of_stray_call(text, stray, marks);
      collector.add(fail(Status::invalid("it has no " + std::string(marks.begin) + " before it")), begin, from);
    } else {
      const size_t head = call + marks.begin.size(), middle = text.find(marks.middle, head);
      MarkedEnd end{.at = text.find(marks.end, head)};
      const size_t next = text.find(marks.begin, head);
      const bool split = middle < std::min(end.at, next);
      const size_t body = middle + marks.middle.size();
      if (split)
        end = end_of_marked_call(text, body, marks);
      else if (next < end.at)
        end = {.at = next, .missing = true};
      from = end.at == kNone ? text.size() : end.at + (end.missing ? 0 : marks.end.size());
      if (end.at == kNone || end.missing || !split) {
        const auto what = end.at == kNone || end.missing ? marks.end : marks.middle;
        collector.add(fail(Status::invalid("it has no " + std::string(what))), begin, from);
      } else {
        collector.add(read(text.substr(head, middle - head), text.substr(body, end.at - body)), begin, from);
      }
    }
    if (skip(marks.list_end)) collector.pass_over(from);
  }
  return collector.finish();
}

}  // namespace tandem::model
