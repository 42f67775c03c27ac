#include "model/reasoning.h"

#include <algorithm>

namespace tandem::model {
namespace {

constexpr std::string_view kReasoningSpace = " \t\r\n";

// How many bytes at the end may belong to `mark`, or are white space before it.
size_t held_reasoning(std::string_view text, std::string_view mark) {
  size_t held = std::min(mark.size() - 1, text.size());
  while (held > 0 && !text.ends_with(mark.substr(0, held))) --held;
  const auto last = text.substr(0, text.size() - held).find_last_not_of(kReasoningSpace);
  return text.size() - (last == std::string_view::npos ? 0 : last + 1);
}

void skip_reasoning_space(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kReasoningSpace), text.size()));
}

}  // namespace

bool is_reasoning_mark(std::string_view text) {
  return std::any_of(kReasoningMarks.begin(), kReasoningMarks.end(),
                     [&](const ReasoningMarks& marks) { return text == marks.begin || text == marks.end; });
}

bool ReasoningSplitter::begins(std::string_view text, bool& undecided) {
  for (const auto& marks : kReasoningMarks) {
    undecided = undecided || marks.begin.starts_with(text);
    if (!text.starts_with(marks.begin)) continue;
    begin_ = marks.begin;
    end_ = marks.end;
    return true;
  }
  return false;
}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view piece, bool last) {
  Parts parts;
  pending_ += piece;
  if (state_ == kBefore) {
    const auto begin = std::min(pending_.find_first_not_of(kReasoningSpace), pending_.size());
    bool undecided = false;
    if (begins(std::string_view(pending_).substr(begin), undecided)) {
      pending_.erase(0, begin + begin_.size());
      state_ = kReasoning;
    } else if (last || !undecided) {
      state_ = begins_inside_ ? kReasoning : kContent;
    }
  }
  while (state_ == kReasoning || state_ == kBehind) {
    if (!(state_ == kReasoning ? take_reasoning(parts, last) : look_behind(last))) break;
  }
  if (state_ == kContent) {
    parts.content = std::move(pending_);
    pending_.clear();
  }
  return parts;
}

// False where more of the text is needed.
bool ReasoningSplitter::take_reasoning(Parts& parts, bool last) {
  if (!any_) skip_reasoning_space(pending_);
  const size_t end = pending_.find(end_);
  const size_t told = end != std::string::npos ? pending_.find_last_not_of(kReasoningSpace, end == 0 ? 0 : end - 1) + 1
                      : last                   ? pending_.find_last_not_of(kReasoningSpace) + 1
                                               : pending_.size() - held_reasoning(pending_, end_);
  const std::string text = pending_.substr(0, end == 0 ? 0 : told);
  if (!text.empty() && !any_ && any_before_) parts.reasoning += '\n';
  parts.reasoning += text;
  any_ = any_ || !text.empty();
  if (end == std::string::npos) {
    pending_.erase(0, last ? pending_.size() : told);
    return false;
  }
  pending_.erase(0, end + end_.size());
  state_ = kBehind;
  return true;
}

bool ReasoningSplitter::look_behind(bool last) {
  skip_reasoning_space(pending_);
  bool undecided = false;
  if (begins(pending_, undecided)) {
    pending_.erase(0, begin_.size());
    any_before_ = any_before_ || any_;
    any_ = false;
    state_ = kReasoning;
    return true;
  }
  if (pending_.empty() || (undecided && !last)) return false;
  state_ = kContent;
  return false;
}

}  // namespace tandem::model
