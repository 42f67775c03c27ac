// How a model writes its messages, and what one of them says: reasoning, content and calls.
//
// Reasoning comes first and is read first; calls are looked for only in what follows it, so that reasoning which
// mentions a call's marks neither makes a call nor hides one. Reasoning behind content stays in the content, and makes
// no call either.
//
// Thread safety: functions from any thread; a MessageStream belongs to one message.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/reasoning.h"
#include "model/tool_dialect.h"
#include "model/tool_stream.h"

namespace tandem::model {

class ChatTemplate;
class Tokenizer;

struct MessageFormat {
  ToolDialect dialect = ToolDialect::kHermes;
  bool reads_tools = false;          // the template uses `tools`
  bool has_reasoning = false;        // the template or the vocabulary has </think> or [/THINK]
  bool begins_in_reasoning = false;  // the prompt ends behind <think>
};

// `with_tools`: which template of several is meant. `prompt`: the rendered text that the message goes on from; empty:
// unknown. `tokenizer` may be null.
MessageFormat message_format(const ChatTemplate& chat_template, bool with_tools, std::string_view prompt = {},
                             const Tokenizer* tokenizer = nullptr);

// `text`: a message without its end token. A text that begins with <think> has reasoning, whatever `has_reasoning`
// says. `tools` (OpenAI's array) decides what is a call:
//   an array    calls by the dialect; values that the dialect writes as texts get the types of the schemas
//   []          nothing is a call: no tools were offered
//   null        it is not known what was offered: whatever has the form of a call is one
// Places of calls and errors are bytes of `text`. Where calls are looked for, content has no white space at its
// beginning.
ParsedMessage parse_message(const MessageFormat& format, std::string_view text, const Json& tools);

// Whether a text of which nothing is known but itself goes on from reasoning that its prompt has opened: a </think>
// stands in it without a <think> before it. One within a whole call is a part of that call's arguments.
bool ends_reasoning_of_prompt(ToolDialect dialect, std::string_view text, const Json& tools);

// The same as parse_message while the message is being written, in whatever pieces it comes: put together, parts are
// what parse_message finds in the whole text. What is told is final.
class MessageStream {
 public:
  struct Parts {
    std::string reasoning;
    // What follows the reasoning, in order. Arguments are typed; of dialects whose values are texts they are told when
    // the call has ended.
    std::vector<ToolEvent> events;
  };
  MessageStream(const MessageFormat& format, Json tools);

  Parts push(std::string_view piece) { return take(piece, false); }
  // The rest. Nothing is pushed afterwards.
  Parts finish() { return take({}, true); }
  bool in_reasoning() const { return splitter_.inside(); }
  // Whether calls are looked for.
  bool reads_calls() const { return calls_.has_value(); }
  // After finish: what parse_message finds.
  const ParsedMessage& message() const { return message_; }

 private:
  Parts take(std::string_view piece, bool last);

  ReasoningSplitter splitter_;
  std::optional<ToolStream> calls_;
  Json tools_;
  bool types_come_late_ = false;
  size_t size_ = 0, content_size_ = 0;  // bytes so far
  ParsedMessage message_;
};

}  // namespace tandem::model
