// Tool calls out of an assistant's text while it is being written, in whatever pieces it comes.
//
// What is told is final: no part of a tag is ever told as text, and calls are told in the order of the text. Put
// together, it is what parse_tool_calls finds in the whole text: texts are its content without white space at the
// beginning, names and arguments those of its calls. Where it cannot be known yet what something is (a tag that may be
// part of a string, a malformed call of GLM's dialect) it is told at the end.
//
// A block of reasoning within the text, <think> to </think>, is text, in which no call is looked for; it is told when
// it has ended.
//
// Thread safety: none; a stream belongs to one message. It keeps the text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/reasoning.h"
#include "model/tool_dialect.h"

namespace tandem::model {

struct ToolEvent {
  enum Kind : uint8_t {
    kText,       // more content
    kCallBegun,  // `text` is the name
    kArguments,  // more of the arguments, which together are the JSON of an object
    kCallEnded,  // `call` is all of it
    kError,      // of a malformed call, which may have begun; `text` is that call as it stands
  };
  Kind kind = kText;
  size_t number = 0;  // of the call or malformed call in the text, from 0
  std::string text;
  ToolCall call;
  ToolCallError error;
};

class CallScanner;
class ObjectWatch;
class OfferedTools;

class ToolStream {
 public:
  // `tools`: as of parse_tool_calls.
  explicit ToolStream(ToolDialect dialect, Json tools = Json());
  ~ToolStream();
  ToolStream(ToolStream&&) noexcept;

  std::vector<ToolEvent> push(std::string_view piece);
  // The rest. Nothing is pushed afterwards.
  std::vector<ToolEvent> finish();
  // After finish: what parse_tool_calls finds.
  const ParsedMessage& message() const { return message_; }

 private:
  void advance();
  bool look_for_call();
  bool begins_with_call(size_t at, bool& undecided);
  bool pass_over_list_end();
  bool pass_over_reasoning(size_t begin, const ReasoningMarks& marks);
  bool follow_call();
  void begin_call(size_t at);
  ParsedMessage parse_call(size_t begin, size_t end) const;
  void tell_text(size_t end);
  void tell_progress();
  void tell_end(const ParsedMessage& parsed, size_t entry, size_t offset);

  ToolDialect dialect_;
  Json tools_;
  std::shared_ptr<const OfferedTools> offered_;
  std::unique_ptr<ObjectWatch> start_;  // of a text that begins with a brace, until it is known what that is
  bool start_is_text_ = false;
  std::string text_;     // without what stands in blocks of reasoning
  std::string written_;  // with it
  std::string content_;  // what has been told of it as text
  bool any_reasoning_ = false;
  std::vector<ToolEvent> events_;
  ParsedMessage message_;
  std::unique_ptr<CallScanner> call_;  // the one that is open
  size_t call_begin_ = 0;
  size_t told_ = 0;               // text up to here has been told or belongs to calls
  size_t scanned_ = 0;            // no tag begins before this
  size_t reasoning_scanned_ = 0;  // the block that begins at scanned_ does not end before this
  size_t behind_ = 0;             // where the text behind the last call begins
  size_t count_ = 0;              // calls and malformed calls that are over
  bool any_text_ = false, segment_has_text_ = false;
  bool closes_list_ = false;   // a mark that ends a list of calls may come next
  bool begun_ = false;         // the open call's name has been told
  size_t told_arguments_ = 0;  // bytes of the open call's
};

}  // namespace tandem::model
