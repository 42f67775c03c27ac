// One call of GLM-4.5 as a reader of tags: <tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ..
// </tool_call>.
//
// A value goes on to its </arg_value>, whatever else stands in it. Two things say that this end is missing, and make
// the call malformed: another argument that the same tool takes, and, behind a closing tag, another call of a tool that
// was offered.
#pragma once

#include "model/tool_dialects/tag_reader.h"

namespace tandem::model {

class GlmReader : public TagReader {
 public:
  using TagReader::TagReader;

 private:
  enum Phase : uint8_t { kOpening, kName, kBetween, kKey, kBeforeValue, kValue, kBroken };
  enum class Mark : uint8_t { kNone, kEnd, kUndecided, kMissingEnd };

  bool step(std::string_view text, bool whole) override;
  bool open(std::string_view text);
  bool read_name(std::string_view text, bool whole);
  bool follow_tags(std::string_view text, bool whole);
  bool read_key(std::string_view text, bool whole);
  bool read_value(std::string_view text, bool whole);
  Mark mark_at(std::string_view text, bool whole);
  Mark argument_behind(std::string_view text, size_t at, bool whole);
  Mark call_behind(std::string_view text, size_t at, bool whole);
  bool find_broken_end(std::string_view text, bool whole);
  bool broken(std::string what);

  Phase phase_ = kOpening;
  bool stray_ = false;  // without its opening tag
  size_t value_begin_ = 0;
  std::optional<size_t> call_end_in_value_;  // where a call's closing tag stands in the value
};

// Whether a call begins at a mark: <tool_call>, or, where tools are known, what shows one whose <tool_call> is missing:
// a key with the opening of its value behind it, and the end of a value with the end of a call behind it.
CallMark glm_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole);

}  // namespace tandem::model
