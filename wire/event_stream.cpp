#include "wire/event_stream.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::wire {

Result<std::vector<StreamEvent>> EventStreamDecoder::feed(std::string_view bytes) {
  std::vector<StreamEvent> events;
  for (const char c : bytes) {
    // A line ends with \r, \n or both together.
    const bool second_half = std::exchange(after_return_, c == '\r') && c == '\n';
    if (second_half) continue;
    if (c == '\r' || c == '\n') {
      TRY(take_line(events));
      line_.clear();
      continue;
    }
    line_ += c;
    if (line_.size() + data_.size() > largest_event_)
      return fail(Status::exhausted(fmt::format("an event of the stream is larger than {} bytes", largest_event_)));
  }
  return events;
}

Status EventStreamDecoder::take_line(std::vector<StreamEvent>& events) {
  std::string_view line = line_;
  if (std::exchange(at_start_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) events.push_back({type_.empty() ? "message" : type_, std::move(data_)});
    type_.clear();
    data_.clear();
    has_data_ = false;
    return {};
  }
  const size_t colon = line.find(':');
  const auto field = line.substr(0, colon);
  auto value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") {
    type_ = value;
  } else if (field == "data") {
    if (has_data_) data_ += '\n';
    data_.append(value);
    has_data_ = true;
    if (data_.size() > largest_event_)
      return Status::exhausted(fmt::format("an event of the stream is larger than {} bytes", largest_event_));
  }
  return {};  // comments, ids and times to reconnect after say nothing to us
}

}  // namespace tandem::wire
