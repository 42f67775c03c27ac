// One call of Qwen3-Coder as a reader of tags: <tool_call><function=NAME><parameter=KEY>VALUE</parameter> ..
// </function></tool_call>. The outer tags may be missing, as they are with some models.
//
// A value goes on to its </parameter>, whatever else stands in it. Two things say that this end is missing, and make
// the call malformed: another parameter of the same tool that begins on a line of its own, and another call of a tool
// that was offered.
#pragma once

#include "model/tool_dialects/tag_reader.h"

namespace tandem::model {

class CoderReader : public TagReader {
 public:
  using TagReader::TagReader;

 private:
  enum Phase : uint8_t { kOpening, kFunction, kName, kBetween, kKey, kValue, kClosing, kBroken };

  bool step(std::string_view text, bool whole) override;
  bool open(std::string_view text);
  bool follow_tags(std::string_view text, bool whole);
  bool read_word(std::string_view text, bool whole);
  bool read_value(std::string_view text, bool whole);
  // The meaning of the mark at `scan_`: the end of the value, that of another call, none, or not known yet.
  enum class Mark : uint8_t { kNone, kEnd, kUndecided, kMissingEnd };
  Mark mark_at(std::string_view text, bool whole);
  Mark call_behind(std::string_view text, size_t at, bool whole);
  bool close(std::string_view text, bool whole);
  bool find_broken_end(std::string_view text, bool whole);
  bool broken(std::string what);

  Phase phase_ = kOpening;
  bool tagged_ = false;
  bool stray_ = false;     // begins with a parameter
  bool in_value_ = false;  // behind the line end at its beginning
  size_t value_begin_ = 0;
  std::optional<size_t> call_end_in_value_;  // where the tags of a call's end stand in the value
};

// Whether a call begins at a mark: <tool_call>, <function=NAME> of a tool that may be called, or on a line of its own
// <parameter=KEY> of one that was offered, which is a malformed one.
CallMark coder_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole);

}  // namespace tandem::model
