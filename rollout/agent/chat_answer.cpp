#include "rollout/agent/chat_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::rollout {
namespace {

constexpr size_t kLongestWords = 400;  // of a server's error

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json* object_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

std::optional<uint64_t> count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

// A text, or a list of parts of which those that are text count.
std::string content_at(const Json& message) {
  const auto found = message.find("content");
  if (found == message.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  std::string text;
  if (!found->is_array()) return text;
  for (const auto& part : *found) {
    if (part.is_object()) text += text_at(part, "text");
  }
  return text;
}

// Two names are in use for the same thing.
std::string reasoning_at(const Json& message) {
  auto text = text_at(message, "reasoning_content");
  return text.empty() ? text_at(message, "reasoning") : text;
}

void read_use(const Json& answer, TokenUse& use) {
  const Json* usage = object_at(answer, "usage");
  if (usage == nullptr) return;
  use.prompt = count_at(*usage, "prompt_tokens");
  use.completion = count_at(*usage, "completion_tokens");
  if (const Json* details = object_at(*usage, "prompt_tokens_details"))
    use.cached = count_at(*details, "cached_tokens");
}

std::string arguments_at(const Json& function) {
  const auto found = function.find("arguments");
  if (found == function.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : dump_json(*found);
}

std::string error_words(const Json& answer) {
  const auto error = answer.find("error");
  if (error == answer.end() || error->is_null())
    return answer.value("object", Json()) == "error" ? text_at(answer, "message") : "";
  if (error->is_string()) return error->get<std::string>();
  if (error->is_object() && !text_at(*error, "message").empty()) return text_at(*error, "message");
  return dump_json(*error);
}

std::string in_bounds(std::string_view words) {
  auto shown = envs::make_printable(words.substr(0, kLongestWords));
  std::ranges::replace(shown, '\n', ' ');
  return std::string(trim(shown));
}

Result<Json> read_object(std::string_view text) {
  auto json = parse_json(text);
  if (!json) return fail(Status::corrupt(fmt::format("the server's answer is not JSON: {}", json.error().message())));
  if (!json->is_object()) return fail(Status::corrupt("the server's answer is no JSON object"));
  if (const auto words = error_words(*json); !words.empty())
    return fail(Status::unavailable(fmt::format("the server says: {}", in_bounds(words))));
  return json;
}

// The first choice; null where there is none.
Result<const Json*> first_choice(const Json& answer) {
  const auto choices = answer.find("choices");
  if (choices == answer.end() || choices->is_null()) return nullptr;
  if (!choices->is_array()) return fail(Status::corrupt("\"choices\" of the server's answer is no list"));
  if (choices->empty()) return nullptr;
  if (!choices->front().is_object()) return fail(Status::corrupt("\"choices\" of the server's answer has no objects"));
  return &choices->front();
}

}  // namespace

Status ChatAnswerReader::take(std::string_view data) {
  if (done_ || trim(data).empty()) return {};
  if (trim(data) == "[DONE]") {
    done_ = true;
    return {};
  }
  const Json chunk = TRY(read_object(data));
  if (answer_.model.empty()) answer_.model = text_at(chunk, "model");
  read_use(chunk, answer_.use);
  const Json* choice = TRY(first_choice(chunk));
  if (choice == nullptr) return {};
  if (auto reason = text_at(*choice, "finish_reason"); !reason.empty()) answer_.finish_reason = std::move(reason);
  const Json* delta = object_at(*choice, "delta");
  if (delta == nullptr) return {};
  answer_.content += content_at(*delta);
  answer_.reasoning += reasoning_at(*delta);
  const auto calls = delta->find("tool_calls");
  if (calls == delta->end() || calls->is_null()) return {};
  return take_calls(*calls);
}

// A call begins with its id and name; its arguments follow in pieces that bear its index. Servers that leave the index
// out send calls whole.
Status ChatAnswerReader::take_calls(const Json& deltas) {
  if (!deltas.is_array()) return Status::corrupt("\"tool_calls\" of the server's answer is no list");
  for (const auto& delta : deltas) {
    if (!delta.is_object()) return Status::corrupt("\"tool_calls\" of the server's answer has no objects");
    auto& calls = answer_.calls;
    const auto id = text_at(delta, "id");
    const bool goes_on = !calls.empty() && (id.empty() || id == calls.back().id);
    const size_t index = count_at(delta, "index").value_or(goes_on ? calls.size() - 1 : calls.size());
    if (index >= kMostChatCalls)
      return Status::corrupt(fmt::format("the server's answer has more than {} calls", kMostChatCalls));
    if (calls.size() <= index) calls.resize(index + 1);
    if (!id.empty()) calls[index].id = id;
    if (const Json* function = object_at(delta, "function")) {
      if (const auto name = text_at(*function, "name"); calls[index].name.empty()) calls[index].name = name;
      calls[index].arguments += arguments_at(*function);
    }
  }
  return {};
}

Result<ChatAnswer> ChatAnswerReader::finish() && {
  if (!done_ && answer_.finish_reason.empty())
    return fail(Status::corrupt("the server's answer broke off before its end"));
  return std::move(answer_);
}

Result<ChatAnswer> read_chat_answer(std::string_view body) {
  const Json answer = TRY(read_object(body));
  const Json* choice = TRY(first_choice(answer));
  const Json* message = choice == nullptr ? nullptr : object_at(*choice, "message");
  if (message == nullptr) return fail(Status::corrupt("the server's answer has no message"));
  ChatAnswer read{.content = content_at(*message),
                  .reasoning = reasoning_at(*message),
                  .finish_reason = text_at(*choice, "finish_reason"),
                  .model = text_at(answer, "model")};
  read_use(answer, read.use);
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || calls->is_null()) return read;
  if (!calls->is_array()) return fail(Status::corrupt("\"tool_calls\" of the server's answer is no list"));
  if (calls->size() > kMostChatCalls)
    return fail(Status::corrupt(fmt::format("the server's answer has more than {} calls", kMostChatCalls)));
  for (const auto& call : *calls) {
    const Json* function = call.is_object() ? object_at(call, "function") : nullptr;
    if (function == nullptr) return fail(Status::corrupt("a call of the server's answer has no function"));
    read.calls.push_back({text_at(call, "id"), text_at(*function, "name"), arguments_at(*function)});
  }
  return read;
}

std::string words_of_error(int status, std::string_view body) {
  std::string words;
  if (const auto json = parse_json(body); json && json->is_object()) {
    words = error_words(*json);
    if (words.empty()) words = text_at(*json, "message");
    if (words.empty()) words = text_at(*json, "detail");
  }
  if (words.empty() && !trim(body).starts_with('<')) words = body;
  words = in_bounds(words);
  return words.empty() ? fmt::format("status {}", status) : fmt::format("status {}: {}", status, words);
}

void put_calls(const ChatAnswer& answer, int turn, AgentTurn& out) {
  std::set<std::string> known;
  for (size_t i = 0; i < answer.calls.size(); ++i) {
    const auto& call = answer.calls[i];
    envs::ParsedCall parsed;
    parsed.call.name = call.name;
    parsed.call.arguments = Json::object();
    auto arguments = parse_json(trim(call.arguments).empty() ? "{}" : std::string_view(call.arguments));
    if (call.name.empty()) {
      parsed.error = "Error: the call has no name.";
    } else if (!arguments) {
      parsed.error = fmt::format("Error: the arguments of the call are not valid JSON: {}. They were: {}",
                                 envs::make_printable(arguments.error().message()), in_bounds(call.arguments));
    } else if (!arguments->is_object()) {
      parsed.error = "Error: the arguments of the call must be a JSON object.";
    } else {
      parsed.call.arguments = std::move(*arguments);
    }
    out.calls.push_back(std::move(parsed));
    const bool usable = !call.id.empty() && !known.contains(call.id);
    out.call_ids.push_back(usable ? call.id : fmt::format("call_{}_{}", turn, i + 1));
    known.insert(out.call_ids.back());
  }
}

Json message_of(const ChatAnswer& answer, const AgentTurn& turn) {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  for (size_t i = 0; i < turn.calls.size(); ++i) {
    // Servers read the arguments of former calls again; those that were no JSON are in the error that answers them.
    message["tool_calls"].push_back(
        {{"id", turn.call_ids[i]},
         {"type", "function"},
         {"function", {{"name", turn.calls[i].call.name}, {"arguments", dump_json(turn.calls[i].call.arguments)}}}});
  }
  return message;
}

}  // namespace tandem::rollout
