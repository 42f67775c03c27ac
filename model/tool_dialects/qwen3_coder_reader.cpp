#include "model/tool_dialects/qwen3_coder_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/parts.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kCoderNone = std::string_view::npos;
constexpr std::string_view kCoderSpace = " \t\r\n", kFunctionOpen = kCoderFunction, kFunctionEnd = "</function>",
                           kParameterOpen = kCoderParameter, kParameterEnd = "</parameter>";

size_t skip_coder_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kCoderSpace, at), text.size());
}

}  // namespace

CallMark coder_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole) {
  if (text.substr(at).starts_with(kToolCall)) return CallMark::kCall;
  const bool parameter = text.substr(at).starts_with(kParameterOpen);
  if (parameter && at > 0 && text[at - 1] != '\n') return CallMark::kText;
  const auto name = text.substr(at + (parameter ? kParameterOpen : kFunctionOpen).size(), kMaxScannedName);
  const size_t end = name.find_first_of(">\n<");
  if (end == kCoderNone) return whole || name.size() == kMaxScannedName ? CallMark::kText : CallMark::kUndecided;
  const auto plain = unquoted(name.substr(0, end));
  if (parameter) return name[end] == '>' && offered.any_takes(plain) ? CallMark::kCall : CallMark::kText;
  return name[end] == '>' && !plain.empty() && offered.may_call(plain) ? CallMark::kCall : CallMark::kText;
}

bool CoderReader::broken(std::string what) {
  error_ = Status::invalid(std::move(what));
  phase_ = kBroken;
  return true;
}

bool CoderReader::step(std::string_view text, bool whole) {
  switch (phase_) {
    case kOpening:
      return open(text);
    case kFunction:
    case kBetween:
      return follow_tags(text, whole);
    case kName:
    case kKey:
      return read_word(text, whole);
    case kValue:
      return read_value(text, whole);
    case kClosing:
      return close(text, whole);
    case kBroken:
      return find_broken_end(text, whole);
  }
  return false;
}

bool CoderReader::open(std::string_view text) {
  tagged_ = text.starts_with(kToolCall);
  if (tagged_) at_ = kToolCall.size();
  if (text.starts_with(kCoderParameter)) {
    at_ = kCoderParameter.size();
    stray_ = true;
    return broken("a parameter has no <function=NAME> before it");
  }
  phase_ = kFunction;
  return true;
}

bool CoderReader::follow_tags(std::string_view text, bool whole) {
  at_ = skip_coder_space(text, at_);
  const auto rest = text.substr(at_);
  const auto wanted = phase_ == kFunction ? kFunctionOpen : kParameterOpen;
  if (rest.starts_with(wanted)) {
    at_ += wanted.size();
    phase_ = phase_ == kFunction ? kName : kKey;
    return true;
  }
  if (may_become(rest, wanted, whole)) return false;
  if (phase_ == kFunction) {
    if (rest.empty()) return broken("it has no closing </function> and </tool_call>");
    return broken("the call does not start with <function=NAME>");
  }
  if (rest.starts_with(kFunctionEnd)) {
    end_arguments();
    at_ += kFunctionEnd.size();
    phase_ = kClosing;
    return true;
  }
  if (may_become(rest, kFunctionEnd, whole)) return false;
  if (rest.empty()) return broken("it has no closing </function> and </tool_call>");
  if (may_become(rest, kToolCallEnd, whole)) return false;
  if (rest.starts_with(kToolCallEnd)) return broken("the call does not end with </function>");
  return broken("a <parameter=KEY> was expected");
}

bool CoderReader::read_word(std::string_view text, bool whole) {
  const auto rest = text.substr(at_, kMaxScannedName);
  const size_t end = rest.find_first_of(">\n<");
  if (end == kCoderNone && !whole && rest.size() < kMaxScannedName) return false;
  if (end == kCoderNone || rest[end] != '>')
    return broken(fmt::format("{} has no closing >", phase_ == kName ? kFunctionOpen : kParameterOpen));
  const std::string word(unquoted(rest.substr(0, end)));
  at_ += end + 1;
  if (phase_ == kName) {
    if (word.empty()) return broken("the function has no name");
    if (!may_be_name(word) && !offered_->offers(word))
      return broken(fmt::format("\"{}\" is no function's name", word.substr(0, 100)));
    call_.name = word;
    name_ = word;
    phase_ = kBetween;
    return true;
  }
  if (call_.arguments.contains(word)) return broken(fmt::format("the parameter \"{}\" stands twice", word));
  begin_argument(word);
  value_begin_ = at_;
  in_value_ = false;
  call_end_in_value_.reset();
  phase_ = kValue;
  return true;
}

// Behind a line end at the beginning, and before one at the end, neither of which is part of the value.
bool CoderReader::read_value(std::string_view text, bool whole) {
  if (!in_value_) {
    if (at_ == text.size() && !whole) return false;
    if (text.substr(at_).starts_with('\n')) ++at_;
    in_value_ = true;
    scan_ = at_;
  }
  for (;;) {
    scan_ = std::min(text.find('<', scan_), text.size());
    const Mark mark = scan_ == text.size() ? Mark::kUndecided : mark_at(text, whole);
    if (mark == Mark::kNone) {
      ++scan_;
      continue;
    }
    const size_t to = scan_ > at_ && text[scan_ - 1] == '\n' ? scan_ - 1 : std::max(scan_, at_);
    add_text(text.substr(at_, to - at_));
    at_ = to;
    if (mark == Mark::kEnd) {
      end_argument();
      at_ = scan_ + kParameterEnd.size();
      phase_ = kBetween;
      return true;
    }
    if (mark == Mark::kUndecided && !whole) return false;
    at_ = call_end_in_value_.value_or(mark == Mark::kMissingEnd ? scan_ : value_begin_);
    return broken(fmt::format("the parameter \"{}\" has no closing </parameter>", key_));
  }
}

CoderReader::Mark CoderReader::mark_at(std::string_view text, bool whole) {
  const auto rest = text.substr(scan_);
  if (rest.starts_with(kParameterEnd)) return Mark::kEnd;
  for (const auto mark : {kParameterEnd, kParameterOpen, kFunctionEnd, kToolCall})
    if (may_become(rest, mark, whole)) return Mark::kUndecided;
  if (rest.starts_with(kParameterOpen)) {
    if (scan_ > value_begin_ && text[scan_ - 1] != '\n') return Mark::kNone;
    const auto word = rest.substr(kParameterOpen.size(), kMaxScannedName);
    const size_t end = word.find_first_of(">\n<");
    if (end == kCoderNone) return whole || word.size() == kMaxScannedName ? Mark::kNone : Mark::kUndecided;
    const auto key = unquoted(word.substr(0, end));
    return word[end] == '>' && !key.empty() && offered_->may_take(call_.name, key) ? Mark::kMissingEnd : Mark::kNone;
  }
  if (rest.starts_with(kFunctionEnd)) {
    const auto behind = text.substr(skip_coder_space(text, scan_ + kFunctionEnd.size()));
    if (may_become(behind, kToolCallEnd, whole)) return Mark::kUndecided;
    if (behind.starts_with(kToolCallEnd) && !call_end_in_value_) call_end_in_value_ = scan_;
    return Mark::kNone;
  }
  return rest.starts_with(kToolCall) && call_end_in_value_ ? call_behind(text, scan_ + kToolCall.size(), whole)
                                                           : Mark::kNone;
}

// The mark of the function behind a call's opening tag in a value.
CoderReader::Mark CoderReader::call_behind(std::string_view text, size_t at, bool whole) {
  at = skip_coder_space(text, at);
  if (may_become(text.substr(at), kFunctionOpen, whole)) return Mark::kUndecided;
  if (!text.substr(at).starts_with(kFunctionOpen)) return Mark::kNone;
  switch (coder_mark_at(text, at, *offered_, whole)) {
    case CallMark::kCall:
      return Mark::kMissingEnd;
    case CallMark::kText:
      return Mark::kNone;
    case CallMark::kUndecided:
      return Mark::kUndecided;
  }
  return Mark::kNone;
}

bool CoderReader::close(std::string_view text, bool whole) {
  const size_t at = skip_coder_space(text, at_);
  const auto rest = text.substr(at);
  if (rest.starts_with(kToolCallEnd)) {
    end_ = at + kToolCallEnd.size();
    return false;
  }
  if (may_become(rest, kToolCallEnd, whole)) return false;
  if (!tagged_) {
    end_ = at_;
    return false;
  }
  return broken(rest.empty() ? "it has no closing </function> and </tool_call>"
                             : "the call does not end with </function> and </tool_call>");
}

// The rest of what cannot be read, up to its closing tag. Where no function stands before it another call ends it, too.
bool CoderReader::find_broken_end(std::string_view text, bool whole) {
  const auto mark = tagged_ ? kToolCallEnd : kFunctionEnd;
  const size_t found = text.find(mark, at_), next = stray_ ? text.find(kToolCall, at_) : kCoderNone;
  if (next < found) {
    end_ = next;
    return false;
  }
  if (found == kCoderNone) {
    if (whole) end_ = text.size();
    const size_t held = std::max(held_back(text, mark), stray_ ? held_back(text, kToolCall) : 0);
    at_ = std::max(at_, text.size() - std::min(text.size(), held));
    return false;
  }
  at_ = found + mark.size();
  if (tagged_)
    end_ = at_;
  else
    phase_ = kClosing;
  return !tagged_;
}

}  // namespace tandem::model
