#include "rollout/agent/endpoint_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/text.h"
#include "rollout/agent/compaction.h"
#include "rollout/agent/spoken_text.h"
#include "wire/event_stream.h"

namespace tandem::rollout {
namespace {

constexpr size_t kLargestAnswer = size_t{16} << 20;  // bytes, whole or in events
constexpr size_t kLargestEvent = size_t{4} << 20;
constexpr size_t kLargestRefusal = size_t{64} << 10;

bool is_passing(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

bool is_one_of(std::string_view reason, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), reason) != words.end();
}

// By what servers call it: OpenAI's, Anthropic's, Mistral's and Gemini's, in small letters.
bool is_at_limit(std::string_view reason) {
  return is_one_of(reason, {"length", "max_tokens", "model_length", "max_output_tokens", "context_length",
                            "model_context_window_exceeded"});
}

bool is_filtered(std::string_view reason) {
  return reason.starts_with("content_filter") ||
         is_one_of(reason, {"safety", "recitation", "prohibited_content", "blocklist", "spii", "image_safety"});
}

// An account without money is told with the status of a server that is busy, and waiting does not help.
bool is_out_of_credit(std::string_view body) {
  return body.find("insufficient_quota") != std::string_view::npos ||
         body.find("billing_hard_limit_reached") != std::string_view::npos;
}

// The words of an answer, or its calls where it has none beside them: what summary_in() is of a server's answer.
std::string summary_of(const ChatAnswer& answer) {
  if (const auto words = trim(answer.content); !words.empty()) return std::string(words);
  std::vector<std::string> calls;
  for (const ChatCall& call : answer.calls)
    calls.push_back(fmt::format(R"({{"name": {}, "arguments": {}}})", dump_json(Json(call.name)), call.arguments));
  return join(calls, "\n");
}

}  // namespace

EndpointModel::EndpointModel(EndpointSettings settings, const Clock& clock)
    : settings_(std::move(settings)), clock_(clock), attempts_(settings_.attempts) {}

Result<std::unique_ptr<EndpointModel>> EndpointModel::create(EndpointSettings settings, const envs::Task& task,
                                                             const Clock& clock) {
  for (auto& url : settings.urls) {
    TRY(wire::check_url(url));
    url = completions_url(url);
  }
  settings.attempts.servers = settings.urls.size();
  std::unique_ptr<EndpointModel> model(new EndpointModel(std::move(settings), clock));
  // As in training; the server's template writes the tools.
  auto opening = envs::opening(task, model->settings_.tools, model->settings_.foreign_tools,
                               envs::ToolListing::kByTemplate, model->settings_.system);
  model->opening_ = std::move(opening.messages);
  model->tools_ = std::move(opening.tools);
  model->names_ = EndpointNames(model->tools_);
  model->sent_tools_ = model->names_.renamed(model->tools_);
  for (const auto& message : model->opening_)
    model->messages_.push_back({{"role", message.role}, {"content", message.content}});
  return model;
}

std::string EndpointModel::request() const {
  Json request = {{"model", settings_.model}, {"messages", messages_}, {"tools", sent_tools_}};
  if (parallel_) request["parallel_tool_calls"] = true;
  if (settings_.temperature) request["temperature"] = *settings_.temperature;
  if (settings_.seed) request["seed"] = *settings_.seed;
  if (settings_.max_tokens) request[old_limit_ ? "max_tokens" : "max_completion_tokens"] = *settings_.max_tokens;
  if (streams_) request["stream"] = true;
  if (streams_ && asks_for_use_) request["stream_options"] = {{"include_usage", true}};
  return dump_json(request);
}

bool EndpointModel::wait_until(Time at, const std::stop_token& stop) const {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto left = at - clock_.now();
  if (left > Duration::zero()) changed.wait_for(lock, stop, left, [] { return false; });
  return !stop.stop_requested();
}

Result<AgentTurn> EndpointModel::turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                      const std::stop_token& stop) {
  for (size_t i = 0; i < replies.size() && i < call_ids_.size(); ++i)
    messages_.push_back({{"role", "tool"}, {"tool_call_id", call_ids_[i]}, {"content", replies[i].output}});
  ++turns_;
  AgentTurn turn;
  if (turns_ > 1 && settings_.compaction.at > 0) {
    if (!tokens_ && listener.trouble)
      listener.trouble("the server counts no tokens, so the conversation is not summed up");
    if (is_compaction_due(settings_.compaction, tokens_.value_or(0), compactions_)) {
      TRY(compact(turn, listener, stop));
      if (!turn.cut_by.empty()) return turn;
    }
  }
  ChatAnswer answer = TRY(next_answer(listener, stop));
  gave_calls_ = gave_calls_ || !answer.calls.empty();
  if (!gave_calls_ && take_calls_of_text(sent_tools_, answer) && !std::exchange(calls_in_text_, true) &&
      listener.trouble)
    listener.trouble("the server hands calls on as text: they are read from there");
  for (auto& call : answer.calls) call.name = names_.here(call.name);
  turn = read(answer, std::move(turn));
  // A server that is done before anything was done has not answered.
  const bool is_silent = turn.text.empty() && turn.calls.empty() && turn.cut_by.empty();
  if (is_silent && !gave_calls_) turn.cut_by = "an answer without a word or a call";
  return turn;
}

Status EndpointModel::compact(AgentTurn& turn, const TurnListener& listener, const std::stop_token& stop) {
  if (listener.trouble)
    listener.trouble(fmt::format("the conversation has {} tokens: it is summed up", tokens_.value_or(0)));
  messages_.push_back({{"role", "user"}, {"content", settings_.compaction.request}});
  const ChatAnswer answer = TRY(next_answer({.text = {}, .trouble = listener.trouble}, stop));
  turn.summary = summary_of(answer);
  turn.use = answer.use;
  if (is_at_limit(answer.finish_reason)) turn.cut_by = "the server's or its own limit of tokens, in a summary";
  if (turn.cut_by.empty() && turn.summary.empty()) turn.cut_by = "a summary without a word";
  if (!turn.cut_by.empty()) return {};
  ++compactions_;
  messages_ = Json::array();
  const auto next = opening_after({.messages = opening_, .tools = {}}, settings_.compaction, turn.summary, "");
  for (const auto& message : next.messages) messages_.push_back({{"role", message.role}, {"content", message.content}});
  return {};
}

Result<ChatAnswer> EndpointModel::next_answer(const TurnListener& listener, const std::stop_token& stop) {
  const auto tell = [&](const std::string& note) {
    if (listener.trouble) listener.trouble(note);
  };
  Status last = Status::internal("no server was asked");
  auto action = attempts_.step(wire::RequestWanted{}, clock_.now());
  while (const auto* send = std::get_if<wire::SendAt>(&action)) {
    const double seconds = to_seconds(send->at - clock_.now());
    const auto& url = settings_.urls[send->server];
    if (send->number > 1)
      tell(fmt::format("{}; asking {} {}", last.message(), url,
                       seconds < 0.05 ? "now" : fmt::format("in {:.1f} s", seconds)));
    else if (seconds >= 1)
      tell(fmt::format("waiting {:.1f} s, for the limit on requests a minute", seconds));
    if (!wait_until(send->at, stop) || (settings_.wait_for_turn && !settings_.wait_for_turn(send->server, stop)))
      return fail(Status::cancelled("the turn was cancelled"));
    wire::AttemptFailed failure;
    auto answer = ask(send->server, listener, stop, failure);
    if (answer) {
      attempts_.step(wire::AttemptAnswered{}, clock_.now());
      return answer;
    }
    if (answer.error().code() == Code::kCancelled) return fail(std::move(answer).error());
    last = std::move(answer).error().at(url);
    action = attempts_.step(failure, clock_.now());
  }
  return fail(std::move(last));
}

Result<ChatAnswer> EndpointModel::ask(size_t server, const TurnListener& listener, const std::stop_token& stop,
                                      wire::AttemptFailed& failure) {
  for (;;) {
    wire::OutgoingRequest post{.url = settings_.urls[server], .body = request(), .limit = settings_.request_limit};
    post.largest_answer = kLargestAnswer;
    post.headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream, application/json"}};
    if (!settings_.key.empty()) post.headers.emplace_back("Authorization", fmt::format("Bearer {}", settings_.key));
    wire::EventStreamDecoder events(kLargestEvent);
    ChatAnswerReader reader;
    SpokenText spoken;
    std::string whole;  // what is not a stream
    const auto on_body = [&](const wire::HttpHead& head, std::string_view bytes) -> Status {
      if (head.status != 200) {
        whole.append(bytes.substr(0, kLargestRefusal - std::min(kLargestRefusal, whole.size())));
        return {};
      }
      if (head.content_type != "text/event-stream") {
        whole.append(bytes);
        return {};
      }
      for (const auto& event : TRY(events.feed(bytes))) TRY(reader.take(event.data));
      if (const auto piece = spoken.grow(reader.content()); !piece.empty() && listener.text) listener.text(piece);
      return {};
    };
    const auto head = wire::http_request(post, on_body, stop);
    if (!head) {
      failure.passing = head.error().code() != Code::kInvalid;
      if (head.error().code() == Code::kUnfit) failure.retry_after = Duration::max();  // the next server may be trusted
      return fail(Status(head.error().code(), without_key(head.error().message())));
    }
    if (head->status != 200) {
      failure.retry_after = head->retry_after;
      if ((head->status == 400 || head->status == 422) && leave_out_what_is_refused(whole)) continue;
      return fail(refused(*head, whole, failure));
    }
    auto answer = head->content_type == "text/event-stream" ? std::move(reader).finish() : read_chat_answer(whole);
    if (!answer) return fail(Status(answer.error().code(), without_key(answer.error().message())));
    if (head->content_type != "text/event-stream" && listener.text) {
      if (const auto piece = spoken.grow(answer->content); !piece.empty()) listener.text(piece);
    }
    return answer;
  }
}

// Each at most once, so that asking again comes to an end.
bool EndpointModel::leave_out_what_is_refused(const std::string& words) {
  const auto refused = [&](bool& used, std::string_view name) {
    if (!used || words.find(name) == std::string::npos) return false;
    used = false;
    return true;
  };
  return (streams_ && refused(asks_for_use_, "stream_options")) || refused(parallel_, "parallel_tool_calls") ||
         (settings_.max_tokens && words.find("max_completion_tokens") != std::string::npos &&
          refused(old_limit_, "max_tokens")) ||
         refused(streams_, "stream") || forget_fields(words);
}

bool EndpointModel::forget_fields(const std::string& words) {
  bool any = false;
  const auto forget = [&](Json& object, std::initializer_list<const char*> kept) {
    std::vector<std::string> named;
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(kept, key) == kept.end() && words.find(key) != std::string::npos) named.push_back(key);
    }
    for (const auto& key : named) {
      object.erase(key);
      refused_fields_.insert(key);
      any = true;
    }
  };
  for (auto& message : messages_) {
    forget(message, {"role", "content", "tool_calls", "tool_call_id"});
    if (!message.contains("tool_calls")) continue;
    for (auto& call : message["tool_calls"]) forget(call, {"id", "type", "function"});
  }
  return any;
}

Status EndpointModel::refused(const wire::HttpHead& head, const std::string& body, wire::AttemptFailed& failure) const {
  const int status = head.status;
  const bool spent = status == 429 && is_out_of_credit(body);
  failure.passing = is_passing(status) && !spent;
  auto refusal = Status::unavailable(without_key(words_of_error(status, body)));
  if (status == 401 || status == 403) {
    return std::move(refusal).hint(settings_.key.empty() ? "set TANDEM_API_KEY to the key of this server"
                                                         : "the key in TANDEM_API_KEY is not accepted here");
  }
  if (spent) return std::move(refusal).hint("the account of this key has no credit left");
  if (!head.redirect.empty())
    return std::move(refusal).hint(
        without_key(fmt::format("the server is at {}: give that URL, without /chat/completions", head.redirect)));
  if (status == 404)
    return std::move(refusal).hint("is --model-name what the server calls its model, and the URL right?");
  return refusal;
}

std::string EndpointModel::without_key(std::string text) const {
  if (settings_.key.empty()) return text;
  for (size_t at = text.find(settings_.key); at != std::string::npos; at = text.find(settings_.key, at))
    text.replace(at, settings_.key.size(), "[key]");
  return text;
}

AgentTurn EndpointModel::read(const ChatAnswer& answer, AgentTurn turn) {
  turn.text = std::string(trim(answer.content));
  turn.reasoning = answer.reasoning;
  tokens_.reset();
  if (answer.use.prompt && answer.use.completion) tokens_ = *answer.use.prompt + *answer.use.completion;
  const auto of_summary = turn.use.completion.value_or(0);
  turn.model = answer.model.empty() ? settings_.model : answer.model;
  turn.use = answer.use;
  if (turn.use.completion) *turn.use.completion += of_summary;
  if (is_at_limit(answer.finish_reason)) turn.cut_by = "the server's or its own limit of tokens";
  if (is_filtered(answer.finish_reason)) turn.cut_by = "the server's content filter";
  if (answer.finish_reason == "refusal") turn.cut_by = "a refusal of the model's";
  if (!answer.refusal.empty()) {
    turn.cut_by = "a refusal of the model's";
    if (turn.text.empty()) turn.text = answer.refusal;
  }
  put_calls(answer, turns_, turn);
  call_ids_ = turn.call_ids;
  messages_.push_back(message_of(answer, turn));
  if (messages_.back().contains("tool_calls")) {
    for (auto& call : messages_.back()["tool_calls"])
      call["function"]["name"] = names_.there(call["function"]["name"].get<std::string>());
  }
  for (const auto& field : refused_fields_) {
    messages_.back().erase(field);
    if (!messages_.back().contains("tool_calls")) continue;
    for (auto& call : messages_.back()["tool_calls"]) call.erase(field);
  }
  return turn;
}

}  // namespace tandem::rollout
