#include "rollout/agent/chat_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "base/text.h"
#include "envs/tools/output.h"
#include "model/message_format.h"

namespace tandem::rollout {
namespace {

constexpr size_t kLongestWords = 400;              // of a server's error
constexpr std::string_view kFailed = "error";      // what an answer ends with that a server gave up
constexpr const char* kOldCall = "function_call";  // the one call of an answer, before there were tool_calls
constexpr std::string_view kEndedByError = "the server ended its answer with an error";

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// In small letters: Gemini has capitals.
std::string finish_reason_at(const Json& choice) {
  auto reason = text_at(choice, "finish_reason");
  for (char& c : reason) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return reason;
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

const Json& content_at(const Json& message) {
  static const Json kNone;
  const auto found = message.find("content");
  return found == message.end() ? kNone : *found;
}

// What an answer has of fields beyond those of `known`: pieces of a text are put together, lists and objects grow.
void take_others(const Json& from, std::span<const std::string_view> known, Json& others) {
  for (const auto& [key, value] : from.items()) {
    if (value.is_null() || std::ranges::find(known, key) != known.end()) continue;
    Json& now = others[key];
    if (now.is_string() && value.is_string()) {
      now = now.get_ref<const std::string&>() + value.get_ref<const std::string&>();
    } else if (now.is_array() && value.is_array()) {
      for (const Json& element : value) now.push_back(element);
    } else if (now.is_object() && value.is_object()) {
      take_others(value, {}, now);
    } else {
      now = value;
    }
  }
}

// What OpenAI's API has in answers; the rest is the server's own.
constexpr std::string_view kOfMessage[] = {"role",    "content",     "tool_calls", "function_call",
                                           "refusal", "annotations", "audio"};
constexpr std::string_view kOfCall[] = {"index", "id", "type", "function"};

std::string with_whole_characters(std::string_view text) {
  SurrogateJoiner joiner;
  auto whole = joiner.push(text);
  return whole + joiner.finish();
}

void make_characters_whole(Json& value) {
  if (value.is_string()) value = with_whole_characters(value.get_ref<const std::string&>());
  if (value.is_structured()) {
    for (auto& inner : value) make_characters_whole(inner);
  }
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
  auto json = parse_json(mark_lone_surrogates(text));
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
  if (auto reason = finish_reason_at(*choice); !reason.empty()) answer_.finish_reason = std::move(reason);
  const Json* delta = object_at(*choice, "delta");
  if (delta == nullptr) return {};
  const auto said = said_parts(content_at(*delta));
  parts_.add(content_at(*delta));
  answer_.content += content_.push(said.text);
  answer_.reasoning += reasoning_.push(reasoning_at(*delta) + said.thinking);
  answer_.refusal += text_at(*delta, "refusal");
  take_others(*delta, kOfMessage, answer_.others);
  const auto calls = delta->find("tool_calls");
  if (calls != delta->end() && !calls->is_null()) return take_calls(*calls);
  if (const Json* function = object_at(*delta, kOldCall)) {
    const Json call = {{"index", 0}, {"function", *function}};
    return take_calls(Json::array({call}));
  }
  return {};
}

// A call begins with its id and name; its arguments follow in pieces that bear its index. Servers that leave the index
// out, or give all calls the same, send calls whole.
Status ChatAnswerReader::take_calls(const Json& deltas) {
  if (!deltas.is_array()) return Status::corrupt("\"tool_calls\" of the server's answer is no list");
  for (const auto& delta : deltas) {
    if (!delta.is_object()) return Status::corrupt("\"tool_calls\" of the server's answer has no objects");
    auto& calls = answer_.calls;
    const auto id = text_at(delta, "id");
    const Json* function = object_at(delta, "function");
    const auto name = function != nullptr ? text_at(*function, "name") : "";
    const auto too_many = Status::corrupt(fmt::format("the server's answer has more than {} calls", kMostChatCalls));
    size_t at = calls.empty() ? 0 : calls.size() - 1;
    if (const auto index = count_at(delta, "index")) {
      if (*index >= kMostChatCalls) return too_many;
      const auto [place, is_new] = call_at_.try_emplace(*index, calls.size());
      if (is_new) calls.emplace_back();
      const auto& known = calls[place->second];
      // Without ids, a name behind whole arguments begins another call; a name that is said with each piece does not.
      const bool is_other = !name.empty() && (id.empty() ? known.id.empty() && !known.arguments.empty()
                                                         : !known.id.empty() && id != known.id);
      if (is_other && parse_json(known.arguments.empty() ? "{}" : known.arguments)) {
        place->second = calls.size();
        calls.emplace_back();
      }
      at = place->second;
    } else if (calls.empty() || (!id.empty() && id != calls.back().id)) {
      at = calls.size();
      calls.emplace_back();
    }
    if (calls.size() > kMostChatCalls) return too_many;
    arguments_.resize(calls.size());
    auto& call = calls[at];
    if (!id.empty()) call.id = id;
    if (call.name.empty()) call.name = name;
    if (function != nullptr) call.arguments += arguments_[at].push(arguments_at(*function));
    take_others(delta, kOfCall, call.others);
  }
  return {};
}

Result<ChatAnswer> ChatAnswerReader::finish() && {
  if (!done_ && answer_.finish_reason.empty())
    return fail(Status::corrupt("the server's answer broke off before its end"));
  if (answer_.finish_reason == kFailed) return fail(Status::corrupt(std::string(kEndedByError)));
  answer_.content += content_.finish();
  answer_.reasoning += reasoning_.finish();
  for (size_t i = 0; i < answer_.calls.size(); ++i) {
    answer_.calls[i].arguments += arguments_[i].finish();
    make_characters_whole(answer_.calls[i].others);
  }
  make_characters_whole(answer_.others);
  answer_.parts = std::move(parts_).finish();
  make_characters_whole(answer_.parts);
  const bool is_empty = answer_.content.empty() && answer_.reasoning.empty() && answer_.refusal.empty();
  if (is_empty && answer_.calls.empty() && answer_.finish_reason.empty())
    return fail(Status::corrupt("the server's answer is empty"));
  return std::move(answer_);
}

Result<ChatAnswer> read_chat_answer(std::string_view body) {
  const Json answer = TRY(read_object(body));
  const Json* choice = TRY(first_choice(answer));
  const Json* message = choice == nullptr ? nullptr : object_at(*choice, "message");
  if (message == nullptr) return fail(Status::corrupt("the server's answer has no message"));
  const auto said = said_parts(content_at(*message));
  ChatAnswer read{.content = with_whole_characters(said.text),
                  .reasoning = with_whole_characters(reasoning_at(*message) + said.thinking),
                  .finish_reason = finish_reason_at(*choice),
                  .model = text_at(answer, "model"),
                  .refusal = with_whole_characters(text_at(*message, "refusal"))};
  read_use(answer, read.use);
  if (read.finish_reason == kFailed) return fail(Status::corrupt(std::string(kEndedByError)));
  take_others(*message, kOfMessage, read.others);
  make_characters_whole(read.others);
  ContentParts parts;
  parts.add(content_at(*message));
  read.parts = std::move(parts).finish();
  make_characters_whole(read.parts);
  const auto calls = message->find("tool_calls");
  const bool has_calls = calls != message->end() && !calls->is_null() && !(calls->is_array() && calls->empty());
  if (const Json* function = object_at(*message, kOldCall); function != nullptr && !has_calls) {
    read.calls.push_back(
        {.name = text_at(*function, "name"), .arguments = with_whole_characters(arguments_at(*function))});
  }
  if (!has_calls) return read;
  if (!calls->is_array()) return fail(Status::corrupt("\"tool_calls\" of the server's answer is no list"));
  if (calls->size() > kMostChatCalls)
    return fail(Status::corrupt(fmt::format("the server's answer has more than {} calls", kMostChatCalls)));
  for (const auto& call : *calls) {
    const Json* function = call.is_object() ? object_at(call, "function") : nullptr;
    if (function == nullptr) return fail(Status::corrupt("a call of the server's answer has no function"));
    auto& taken = read.calls.emplace_back();
    taken.id = text_at(call, "id");
    taken.name = text_at(*function, "name");
    taken.arguments = with_whole_characters(arguments_at(*function));
    take_others(call, kOfCall, taken.others);
    make_characters_whole(taken.others);
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

bool take_calls_of_text(const Json& tools, ChatAnswer& answer) {
  if (!answer.calls.empty() || trim(answer.content).empty() || !tools.is_array() || tools.empty()) return false;
  const auto is_offered = [&](const model::ToolCall& call) {
    return std::ranges::any_of(tools, [&](const Json& tool) {
      const Json* function = tool.is_object() ? object_at(tool, "function") : nullptr;
      return function != nullptr && text_at(*function, "name") == call.name;
    });
  };
  for (const auto dialect : model::kToolDialects) {
    const auto message = model::parse_message({.dialect = dialect, .reads_tools = true}, answer.content, tools);
    if (message.calls.empty() || !message.errors.empty() || !std::ranges::all_of(message.calls, is_offered)) continue;
    if (answer.reasoning.empty()) answer.reasoning = message.reasoning;
    answer.content = message.content;
    replace_text(message.content, answer.parts);
    for (const auto& call : message.calls) {
      auto& taken = answer.calls.emplace_back();
      taken.id = call.id;
      taken.name = call.name;
      taken.arguments = dump_json(call.arguments);
    }
    return true;
  }
  return false;
}

Json message_of(const ChatAnswer& answer, const AgentTurn& turn) {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!are_plain_text(answer.parts)) message["content"] = answer.parts;
  message.update(answer.others);
  for (size_t i = 0; i < turn.calls.size(); ++i) {
    // Servers read the arguments of former calls again; those that were no JSON are in the error that answers them.
    Json call = {
        {"id", turn.call_ids[i]},
        {"type", "function"},
        {"function", {{"name", turn.calls[i].call.name}, {"arguments", dump_json(turn.calls[i].call.arguments)}}}};
    if (i < answer.calls.size()) call.update(answer.calls[i].others);
    message["tool_calls"].push_back(std::move(call));
  }
  return message;
}

}  // namespace tandem::rollout
