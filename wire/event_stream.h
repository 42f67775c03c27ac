// Server-sent events (the text/event-stream of the HTML standard), decoded as the bytes come in.
//
// Bytes may be split anywhere. An event that is incomplete at the end of the stream is dropped. Thread safety: none;
// one owner. Memory: bounded by the largest event.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::wire {

struct StreamEvent {
  std::string type;  // "message" where the stream names none
  std::string data;  // its lines with line ends between
  friend bool operator==(const StreamEvent&, const StreamEvent&) = default;
};

class EventStreamDecoder {
 public:
  explicit EventStreamDecoder(size_t largest_event) : largest_event_(largest_event) {}

  // The events that end in these bytes. kExhausted, and nothing more comes out, where one is larger than allowed.
  Result<std::vector<StreamEvent>> feed(std::string_view bytes);

 private:
  Status take_line(std::vector<StreamEvent>& events);

  size_t largest_event_;
  std::string line_, type_, data_;
  bool has_data_ = false, after_return_ = false, at_start_ = true;
};

}  // namespace tandem::wire
