// Answers of an OpenAI-compatible server (/v1/chat/completions), streamed or whole, read from bytes that nobody vouches
// for.
//
// Thread safety: none; one owner. Memory: bounded by the limits below and what the HTTP client lets through.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "rollout/agent/agent_model.h"

namespace tandem::rollout {

inline constexpr size_t kMostChatCalls = 128;  // of one answer

struct ChatCall {
  std::string id, name;
  std::string arguments;  // as the model wrote them: JSON, it is hoped
};

struct ChatAnswer {
  std::string content, reasoning, finish_reason, model;
  std::vector<ChatCall> calls;
  TokenUse use;
};

// The chunks of a stream, one after the other.
class ChatAnswerReader {
 public:
  // The data of one event. kCorrupt for what is no chunk, kUnavailable, with its words, for an error of the server's.
  Status take(std::string_view data);
  const std::string& content() const { return answer_.content; }
  // The answer; kCorrupt where the stream broke off before the end of it.
  Result<ChatAnswer> finish() &&;

 private:
  Status take_calls(const Json& deltas);
  ChatAnswer answer_;
  bool done_ = false;
};

// A whole answer. The same errors.
Result<ChatAnswer> read_chat_answer(std::string_view body);

// What a server says about a refusal, printable and in bounds; its status where it says nothing.
std::string words_of_error(int status, std::string_view body);

// Calls as the sandbox takes them: malformed ones as an error for the model to read. Ids are made where they are
// missing or double.
void put_calls(const ChatAnswer& answer, int turn, AgentTurn& out);

// The message that stands for the answer in the requests that follow.
Json message_of(const ChatAnswer& answer, const AgentTurn& turn);

}  // namespace tandem::rollout
