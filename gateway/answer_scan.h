// Reads token counts, and the id for later requests, from an answer as it passes.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "wire/event_stream.h"

namespace tandem::gateway {

struct AnswerNotes {
  uint64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  bool counted = false;     // it said so; else answer_tokens is the number of its events
  std::string response_id;  // of /v1/responses; empty: none
};

class AnswerScan {
 public:
  // Takes a piece of an event stream. Too large events are passed on unread.
  void feed(std::string_view bytes);
  // Takes a whole body.
  void read(const Json& body);
  const AnswerNotes& notes() const { return notes_; }

 private:
  void read_event(const wire::StreamEvent& event);
  AnswerNotes notes_;
  wire::EventStreamDecoder decoder_{size_t{4} << 20};
  bool readable_ = true;
};

}  // namespace tandem::gateway
