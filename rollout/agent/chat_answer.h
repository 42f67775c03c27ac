// Answers of an OpenAI-compatible server (/v1/chat/completions), streamed or whole, read from bytes that nobody vouches
// for.
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
  std::string arguments;         // as the model wrote them: JSON, it is hoped
  Json others = Json::object();  // fields that only the server knows
};

struct ChatAnswer {
  std::string content, reasoning, finish_reason, model;
  Json parts = Json::array();  // the content as it came, for servers that have more in it than text
  std::string refusal;         // the model's words where it will not answer
  std::vector<ChatCall> calls;
  // Fields of the message that only the server knows, reasoning among them: it wants them back with the message.
  Json others = Json::object();
  TokenUse use;
};

// The chunks of a stream, one after the other.
class ChatAnswerReader {
 public:
  // The data of one event. kCorrupt for what is no chunk, kUnavailable, with its words, for an error of the server's.
  // Characters that are cut in two by the end of an event are put together.
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

// A whole answer. The same errors.
Result<ChatAnswer> read_chat_answer(std::string_view body);

// What a server says about a refusal, printable and in bounds; its status where it says nothing.
std::string words_of_error(int status, std::string_view body);

// Calls as the sandbox takes them: malformed ones as an error for the model to read. Ids are made where they are
// missing or double.
void put_calls(const ChatAnswer& answer, int turn, AgentTurn& out);

// Makes calls of what an answer without calls says in its text, as servers hand it on that do not know how their model
// writes calls: where one of the dialects reads calls of the `tools` there, and nothing that is malformed.
bool take_calls_of_text(const Json& tools, ChatAnswer& answer);

// The message that stands for the answer in the requests that follow, with the fields that only the server knows.
Json message_of(const ChatAnswer& answer, const AgentTurn& turn);

}  // namespace tandem::rollout
