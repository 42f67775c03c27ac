// Parses answers of an OpenAI-compatible server (/v1/chat/completions), streamed or whole, from untrusted bytes.
//
// Thread safety: none; one owner. Memory: bounded by the limits below and what the HTTP client lets through.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/lone_surrogates.h"
#include "rollout/agent/agent_model.h"
#include "rollout/agent/content_parts.h"

namespace tandem::rollout {

inline constexpr size_t kMostChatCalls = 128;  // of one answer

struct ChatCall {
  std::string id, name;
  std::string arguments;         // as the model wrote them, perhaps invalid JSON
  Json others = Json::object();  // unknown fields
};

struct ChatAnswer {
  std::string content, reasoning, finish_reason, model;
  Json parts = Json::array();  // the content as it came, for servers that have more in it than text
  std::string refusal;         // the model's words where it will not answer
  std::vector<ChatCall> calls;
  // Unknown fields of the message, such as reasoning; they are sent back with the message.
  Json others = Json::object();
  TokenUse use;
};

// The chunks of a stream, one after the other.
class ChatAnswerReader {
 public:
  // Takes the data of one event. kCorrupt for anything but a chunk; kUnavailable, with the server's message, for an
  // error of the server. Characters that are split between events are joined.
  Status take(std::string_view data);
  const std::string& content() const { return answer_.content; }
  // The answer; kCorrupt where the stream broke off before the end of it, or nothing came.
  Result<ChatAnswer> finish() &&;

 private:
  Status take_calls(const Json& deltas);
  ChatAnswer answer_;
  std::map<uint64_t, size_t> call_at_;  // by index of the stream, which may begin anywhere: the call it is of by now
  SurrogateJoiner content_, reasoning_;
  ContentParts parts_;
  std::vector<SurrogateJoiner> arguments_;  // of each call
  bool done_ = false;
};

// Parses a whole answer, with the same errors.
Result<ChatAnswer> read_chat_answer(std::string_view body);

// The server's message about a refusal, printable and bounded; its status where there is none.
std::string words_of_error(int status, std::string_view body);

// Calls as the sandbox takes them: malformed ones as an error for the model to read. Ids are made where they are
// missing or double.
void put_calls(const ChatAnswer& answer, int turn, AgentTurn& out);

// Extracts calls from the text of an answer without calls, as sent by servers that do not parse their model's calls.
// Only where a dialect reads calls of `tools` there and nothing malformed.
bool take_calls_of_text(const Json& tools, ChatAnswer& answer);

// The message for the answer in later requests, with its unknown fields.
Json message_of(const ChatAnswer& answer, const AgentTurn& turn);

}  // namespace tandem::rollout
