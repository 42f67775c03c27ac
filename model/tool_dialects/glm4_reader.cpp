#include "model/tool_dialects/glm4_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/parts.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kGlmNone = std::string_view::npos;
constexpr std::string_view kGlmSpace = " \t\r\n", kKeyOpen = kGlmKey, kKeyEnd = "</arg_key>",
                           kValueOpen = "<arg_value>", kValueEnd = kGlmValueEnd;

size_t skip_glm_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kGlmSpace, at), text.size());
}

}  // namespace

CallMark glm_mark_at(std::string_view text, size_t at, const OfferedTools& offered, bool whole) {
  const auto starts = [&](std::string_view mark) { return text.substr(at).starts_with(mark); };
  const auto may_start = [&](std::string_view mark) {
    const auto rest = text.substr(at);
    return !whole && rest.size() < mark.size() && mark.starts_with(rest);
  };
  if (starts(kToolCall)) return CallMark::kCall;
  if (!offered.known()) return CallMark::kText;
  std::string_view wanted = kToolCallEnd;
  if (starts(kKeyOpen)) {
    const auto word = text.substr(at + kKeyOpen.size(), kMaxScannedName);
    const size_t end = word.find('<');
    if (end == kGlmNone) return whole || word.size() == kMaxScannedName ? CallMark::kText : CallMark::kUndecided;
    at += kKeyOpen.size() + end;
    if (may_start(kKeyEnd)) return CallMark::kUndecided;
    if (!starts(kKeyEnd)) return CallMark::kText;
    at += kKeyEnd.size();
    wanted = kValueOpen;
  } else {
    at += kValueEnd.size();
  }
  at = skip_glm_space(text, at);
  return starts(wanted) ? CallMark::kCall : may_start(wanted) ? CallMark::kUndecided : CallMark::kText;
}

bool GlmReader::open(std::string_view text) {
  at_ = kToolCall.size();
  phase_ = kName;
  if (text.starts_with(kToolCall)) return true;
  at_ = 1;
  stray_ = true;
  return broken("it has no <tool_call> before it");
}

bool GlmReader::broken(std::string what) {
  error_ = Status::invalid(std::move(what));
  phase_ = kBroken;
  return true;
}

bool GlmReader::step(std::string_view text, bool whole) {
  switch (phase_) {
    case kOpening:
      return open(text);
    case kName:
      return read_name(text, whole);
    case kBetween:
    case kBeforeValue:
      return follow_tags(text, whole);
    case kKey:
      return read_key(text, whole);
    case kValue:
      return read_value(text, whole);
    case kBroken:
      return find_broken_end(text, whole);
  }
  return false;
}

// Up to a line end or a tag; line ends before it are passed over.
bool GlmReader::read_name(std::string_view text, bool whole) {
  const size_t begin = skip_glm_space(text, at_);
  const auto rest = text.substr(begin, kMaxScannedName);
  const size_t end = rest.find_first_of("\n<");
  if (end == kGlmNone && !whole && rest.size() < kMaxScannedName) return false;
  const auto name = unquoted(rest.substr(0, end));
  if (name.empty() || end == kGlmNone)
    return broken(name.empty() ? "the call has no name" : "it has no closing </tool_call>");
  if (!may_be_name(name) && !offered_->offers(name))
    return broken(fmt::format("\"{}\" is no tool's name", name.substr(0, 100)));
  call_.name = std::string(name);
  name_ = call_.name;
  at_ = begin + end;
  phase_ = kBetween;
  return true;
}

bool GlmReader::follow_tags(std::string_view text, bool whole) {
  at_ = skip_glm_space(text, at_);
  const auto rest = text.substr(at_);
  const auto wanted = phase_ == kBetween ? kKeyOpen : kValueOpen;
  if (rest.starts_with(wanted)) {
    at_ += wanted.size();
    if (phase_ == kBeforeValue) {
      scan_ = value_begin_ = at_;
      call_end_in_value_.reset();
    }
    phase_ = phase_ == kBetween ? kKey : kValue;
    return true;
  }
  if (may_become(rest, wanted, whole)) return false;
  if (phase_ == kBetween) {
    if (rest.starts_with(kToolCallEnd)) {
      end_arguments();
      end_ = at_ + kToolCallEnd.size();
      return false;
    }
    if (may_become(rest, kToolCallEnd, whole)) return false;
  }
  return broken(rest.empty() ? "it has no closing </tool_call>" : fmt::format("{} was expected", wanted));
}

bool GlmReader::read_key(std::string_view text, bool whole) {
  const auto rest = text.substr(at_, kMaxScannedName);
  const size_t end = rest.find('<');
  if (end == kGlmNone && !whole && rest.size() < kMaxScannedName) return false;
  if (end != kGlmNone && may_become(rest.substr(end), kKeyEnd, whole) && rest.size() < kMaxScannedName) return false;
  if (end == kGlmNone || !rest.substr(end).starts_with(kKeyEnd))
    return broken(fmt::format("{} has no closing {}", kKeyOpen, kKeyEnd));
  const std::string key(unquoted(rest.substr(0, end)));
  at_ += end + kKeyEnd.size();
  if (call_.arguments.contains(key)) return broken(fmt::format("the argument \"{}\" stands twice", key));
  begin_argument(key);
  phase_ = kBeforeValue;
  return true;
}

bool GlmReader::read_value(std::string_view text, bool whole) {
  for (;;) {
    scan_ = std::min(text.find('<', scan_), text.size());
    const Mark mark = scan_ == text.size() ? Mark::kUndecided : mark_at(text, whole);
    if (mark == Mark::kNone) {
      ++scan_;
      continue;
    }
    add_text(text.substr(at_, scan_ - at_));
    at_ = scan_;
    if (mark == Mark::kEnd) {
      end_argument();
      at_ += kValueEnd.size();
      phase_ = kBetween;
      return true;
    }
    if (mark == Mark::kUndecided && !whole) return false;
    at_ = call_end_in_value_.value_or(mark == Mark::kMissingEnd ? scan_ : value_begin_);
    return broken(fmt::format("{} of \"{}\" has no closing {}", kValueOpen, key_, kValueEnd));
  }
}

GlmReader::Mark GlmReader::mark_at(std::string_view text, bool whole) {
  const auto rest = text.substr(scan_);
  if (rest.starts_with(kValueEnd)) return Mark::kEnd;
  for (const auto mark : {kValueEnd, kKeyOpen, kToolCallEnd, kToolCall})
    if (may_become(rest, mark, whole)) return Mark::kUndecided;
  if (rest.starts_with(kKeyOpen)) return argument_behind(text, scan_ + kKeyOpen.size(), whole);
  if (rest.starts_with(kToolCallEnd) && !call_end_in_value_) call_end_in_value_ = scan_;
  return rest.starts_with(kToolCall) && call_end_in_value_ ? call_behind(text, scan_ + kToolCall.size(), whole)
                                                           : Mark::kNone;
}

// KEY</arg_key> and <arg_value>.
GlmReader::Mark GlmReader::argument_behind(std::string_view text, size_t at, bool whole) {
  const auto word = text.substr(at, kMaxScannedName);
  const size_t end = word.find('<');
  if (end == kGlmNone) return whole || word.size() == kMaxScannedName ? Mark::kNone : Mark::kUndecided;
  const auto key = unquoted(word.substr(0, end));
  at += end;
  for (const auto mark : {kKeyEnd, kValueOpen}) {
    if (may_become(text.substr(at), mark, whole)) return Mark::kUndecided;
    if (!text.substr(at).starts_with(mark)) return Mark::kNone;
    at = skip_glm_space(text, at + mark.size());
  }
  return !key.empty() && offered_->may_take(call_.name, key) ? Mark::kMissingEnd : Mark::kNone;
}

// NAME behind <tool_call>.
GlmReader::Mark GlmReader::call_behind(std::string_view text, size_t at, bool whole) {
  at = skip_glm_space(text, at);
  const auto word = text.substr(at, kMaxScannedName);
  const size_t end = word.find_first_of("\n<");
  if (end == kGlmNone) return whole || word.size() == kMaxScannedName ? Mark::kNone : Mark::kUndecided;
  const auto name = unquoted(word.substr(0, end));
  return !name.empty() && offered_->may_call(name) ? Mark::kMissingEnd : Mark::kNone;
}

bool GlmReader::find_broken_end(std::string_view text, bool whole) {
  const size_t found = text.find(kToolCallEnd, at_), next = stray_ ? text.find(kToolCall, at_) : kGlmNone;
  if (next < found) {
    end_ = next;
    return false;
  }
  if (found != kGlmNone) {
    end_ = found + kToolCallEnd.size();
    return false;
  }
  if (whole) end_ = text.size();
  const size_t held = std::max(held_back(text, kToolCallEnd), stray_ ? held_back(text, kToolCall) : 0);
  at_ = std::max(at_, text.size() - std::min(text.size(), held));
  return false;
}

}  // namespace tandem::model
