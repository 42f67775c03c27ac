#include "model/tool_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/tool_dialects/call_scanner.h"
#include "model/tool_dialects/dialects.h"
#include "model/tool_dialects/glm4_reader.h"
#include "model/tool_dialects/llama3_start.h"
#include "model/tool_dialects/marks.h"
#include "model/tool_dialects/qwen3_coder_reader.h"

namespace tandem::model {

namespace {

constexpr std::string_view kToolStreamSpace = " \t\r\n";
constexpr auto kToolStreamNone = std::string_view::npos;

std::string_view list_end_of(ToolDialect dialect) {
  if (dialect == ToolDialect::kKimiK2) return kKimiMarks.list_end;
  const bool deepseek = dialect == ToolDialect::kDeepseekV3 || dialect == ToolDialect::kDeepseekV31;
  return deepseek ? kDeepseekMarks.list_end : std::string_view();
}

}  // namespace

ToolStream::ToolStream(ToolDialect dialect, Json tools)
    : dialect_(dialect), tools_(std::move(tools)), offered_(std::make_shared<const OfferedTools>(tools_)) {}
ToolStream::~ToolStream() = default;
ToolStream::ToolStream(ToolStream&&) noexcept = default;

std::vector<ToolEvent> ToolStream::push(std::string_view piece) {
  text_ += piece;
  written_ += piece;
  advance();
  return std::exchange(events_, {});
}

void ToolStream::advance() {
  while (call_ ? follow_call() : look_for_call()) {
  }
}

// False where more of the text is needed.
bool ToolStream::look_for_call() {
  const std::string_view text = text_;
  if (!pass_over_list_end()) return false;
  if (dialect_ == ToolDialect::kLlama3 && told_ == 0 && !start_is_text_) {
    const size_t at = text.find_first_not_of(kToolStreamSpace);
    if (at == kToolStreamNone) return false;
    bool undecided = false;
    if (text[at] == '{' && begins_with_call(at, undecided)) return begin_call(at), true;
    if (undecided) return false;
    start_is_text_ = true;
  }
  size_t found = kToolStreamNone, held = 0;
  for (const auto mark : opening_marks(dialect_)) {
    found = std::min(found, text.find(mark, scanned_));
    held = std::max(held, held_back(text.substr(scanned_), mark));
  }
  size_t reasoning = kToolStreamNone;
  const ReasoningMarks* marks = nullptr;
  for (const ReasoningMarks& one : kReasoningMarks) {
    const size_t at = text.find(one.begin, scanned_);
    held = std::max(held, held_back(text.substr(scanned_), one.begin));
    if (at >= reasoning) continue;
    reasoning = at;
    marks = &one;
  }
  if (reasoning < found) return pass_over_reasoning(reasoning, *marks);
  if (found == kToolStreamNone) {
    scanned_ = text.size() - held;
    tell_text(scanned_);
    return false;
  }
  auto mark = CallMark::kCall;
  if (dialect_ == ToolDialect::kQwen3Coder) mark = coder_mark_at(text, found, *offered_, false);
  if (dialect_ == ToolDialect::kMistral || dialect_ == ToolDialect::kMistralV11)
    mark = mistral_mark_at(text, found, *offered_, false);
  if (dialect_ == ToolDialect::kGlm4) mark = glm_mark_at(text, found, *offered_, false);
  if (dialect_ == ToolDialect::kHermes && text.substr(found).starts_with(kToolCallEnd) &&
      !closes_no_hermes_call(text, behind_, found))
    mark = CallMark::kText;
  if (mark == CallMark::kText) {
    scanned_ = found + 1;
    return true;
  }
  if (mark == CallMark::kUndecided) {
    scanned_ = found;
    tell_text(found);
    return false;
  }
  begin_call(found);
  return true;
}

// Nothing in a block of reasoning is a call, though it is text. One that has no end is none.
bool ToolStream::pass_over_reasoning(size_t begin, const ReasoningMarks& marks) {
  const size_t inner = begin + marks.begin.size();
  const size_t end = text_.find(marks.end, std::max(inner, reasoning_scanned_));
  if (end == kToolStreamNone) {
    reasoning_scanned_ = std::max(inner, text_.size() - std::min(text_.size(), marks.end.size() - 1));
    scanned_ = begin;
    tell_text(begin);
    return false;
  }
  scanned_ = end + marks.end.size();
  // Put aside in what calls are looked for in.
  std::fill(text_.begin() + static_cast<ptrdiff_t>(begin), text_.begin() + static_cast<ptrdiff_t>(scanned_), 'x');
  reasoning_scanned_ = 0;
  any_reasoning_ = true;
  return true;
}

bool ToolStream::begins_with_call(size_t at, bool& undecided) {
  if (!start_) start_ = std::make_unique<ObjectWatch>(at);
  start_->advance(text_);
  const auto form = form_of_brace(*start_, text_, *offered_, false);
  undecided = form == BraceForm::kUndecided;
  return form == BraceForm::kCall;
}

// Behind a call, the mark that closes a list of calls is no text. False where it is not known yet.
bool ToolStream::pass_over_list_end() {
  const auto list_end = list_end_of(dialect_);
  if (!closes_list_ || list_end.empty()) return true;
  const std::string_view text = text_;
  const size_t at = text.find_first_not_of(kToolStreamSpace, told_);
  if (at == kToolStreamNone || (text.size() - at < list_end.size() && list_end.starts_with(text.substr(at))))
    return false;
  if (text.substr(at).starts_with(list_end)) told_ = scanned_ = at + list_end.size();
  closes_list_ = false;
  return true;
}

// The call in a part of the text that is one.
ParsedMessage ToolStream::parse_call(size_t begin, size_t end) const {
  const auto part = std::string_view(text_).substr(begin, end - begin);
  if (dialect_ == ToolDialect::kLlama3) return parse_more_llama3(part);
  if (dialect_ != ToolDialect::kHermes || !part.starts_with(kToolCallEnd))
    return parse_by_dialect(dialect_, part, offered_);
  // Whether a closing tag alone is one shows in what stands before it.
  ParsedMessage message = parse_hermes(text_.substr(behind_, end - behind_), offered_);
  for (ToolCallError& error : message.errors) {
    error.begin -= begin - behind_;
    error.end -= begin - behind_;
  }
  return message;
}

void ToolStream::begin_call(size_t at) {
  tell_text(at);
  call_begin_ = at;
  call_ = make_call_scanner(dialect_, offered_);
  begun_ = false;
  told_arguments_ = 0;
}

bool ToolStream::follow_call() {
  const auto text = std::string_view(text_).substr(call_begin_);
  const auto length = call_->advance(text);
  tell_progress();
  if (!length) return false;
  size_t from = 0;
  if (dialect_ == ToolDialect::kLlama3) from = text.find_first_not_of(" \t\r\n;");
  const auto parsed = parse_call(call_begin_ + from, call_begin_ + *length);
  for (const size_t entry : parsed.order) tell_end(parsed, entry, call_begin_ + from);
  told_ = scanned_ = behind_ = call_begin_ + *length;
  // Behind a call of Llama there are only calls, and what is none is wrong.
  if (dialect_ == ToolDialect::kLlama3) begin_call(told_);
  return true;
}

void ToolStream::tell_progress() {
  if (!begun_ && call_->name()) {
    events_.push_back({.kind = ToolEvent::kCallBegun, .number = count_, .text = *call_->name()});
    begun_ = true;
  }
  const std::string& arguments = call_->arguments();
  if (!begun_ || arguments.size() <= told_arguments_) return;
  events_.push_back({.kind = ToolEvent::kArguments, .number = count_, .text = arguments.substr(told_arguments_)});
  told_arguments_ = arguments.size();
}

void ToolStream::tell_end(const ParsedMessage& parsed, size_t entry, size_t offset) {
  ToolEvent event{.number = count_};
  if (entry < parsed.calls.size()) {
    event.call = parsed.calls[entry];
    event.call.begin += offset;
    event.call.end += offset;
    if (!begun_) events_.push_back({.kind = ToolEvent::kCallBegun, .number = count_, .text = event.call.name});
    // A call that only the end of the text ends may lack arguments. A whole object is the beginning of none.
    const std::string arguments = dump_json(event.call.arguments);
    const auto told = call_ ? std::string_view(call_->arguments()).substr(0, told_arguments_) : std::string_view();
    if (arguments.size() > told.size() && arguments.starts_with(told)) {
      events_.push_back({.kind = ToolEvent::kArguments, .number = count_, .text = arguments.substr(told.size())});
    }
    event.kind = ToolEvent::kCallEnded;
  } else {
    const ToolCallError& error = parsed.errors[entry - parsed.calls.size()];
    const auto what = std::string_view(error.message).substr(error.message.find(": "));
    event.kind = ToolEvent::kError;
    event.error = {fmt::format("tool call {}{}", count_ + 1, what), error.begin + offset, error.end + offset};
    event.text = written_.substr(event.error.begin, error.end - error.begin);
  }
  events_.push_back(std::move(event));
  ++count_;
  call_.reset();
  begun_ = false;
  told_arguments_ = 0;
  segment_has_text_ = false;
  closes_list_ = true;
}

// Content up to `end`, but for white space around calls and at the beginning. White space at the end waits for what
// follows it.
void ToolStream::tell_text(size_t end) {
  std::string_view part = std::string_view(text_).substr(told_, end - told_);
  if (!segment_has_text_) {
    const size_t first = part.find_first_not_of(kToolStreamSpace);
    if (first == kToolStreamNone) return;
    part.remove_prefix(first);
    told_ += first;
  }
  const size_t last = part.find_last_not_of(kToolStreamSpace);
  if (last == kToolStreamNone) return;
  part = part.substr(0, last + 1);
  ToolEvent event{.kind = ToolEvent::kText, .number = count_};
  if (any_text_ && !segment_has_text_) event.text = "\n";
  event.text += std::string_view(written_).substr(told_, part.size());
  told_ += part.size();
  any_text_ = segment_has_text_ = true;
  content_ += event.text;
  events_.push_back(std::move(event));
}

std::vector<ToolEvent> ToolStream::finish() {
  message_ = parse_by_dialect(dialect_, text_, offered_);
  const std::string_view text = text_;
  const auto list_end = list_end_of(dialect_);
  for (size_t i = count_; i < message_.order.size(); ++i) {
    const size_t entry = message_.order[i], calls = message_.calls.size();
    const size_t begin = entry < calls ? message_.calls[entry].begin : message_.errors[entry - calls].begin;
    const size_t end = entry < calls ? message_.calls[entry].end : message_.errors[entry - calls].end;
    if (begin > told_) tell_text(begin);
    tell_end(message_, entry, 0);
    told_ = std::max(told_, end);
  }
  if (count_ > 0 && closes_list_ && !list_end.empty()) {
    const size_t at = text.find_first_not_of(kToolStreamSpace, told_);
    if (at != kToolStreamNone && text.substr(at).starts_with(list_end)) told_ = at + list_end.size();
  }
  tell_text(text.size());
  if (count_ == 0 && any_text_ && told_ < text.size()) {
    events_.push_back({.kind = ToolEvent::kText, .text = written_.substr(told_)});
    content_ += events_.back().text;
  }
  if (any_reasoning_) message_.content = std::move(content_);
  return std::exchange(events_, {});
}

}  // namespace tandem::model
