// A server of chat completions that says what a test wrote down for it: a real one, over HTTP.
//
// Answers are given in order, one for each request; when none is left the connection is closed. Requests are kept.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "wire/http_server.h"

namespace tandem {

class ScriptedServer {
 public:
  ScriptedServer() : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{16} << 20})) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (answers_.empty()) return;
      auto answer = std::move(answers_.front());
      answers_.pop_front();
      if (answer.status == kNever) return waiting_.push_back(reply);
      if (answer.status != kCut) reply(std::move(answer));
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~ScriptedServer() {
    stop_ = true;
    thread_.join();
    waiting_.clear();
  }

  static constexpr int kCut = 0, kNever = -1;  // in place of a status: the connection is closed; nothing is said

  void answer(wire::HttpResponse response) {
    std::lock_guard lock(mutex_);
    answers_.push_back(std::move(response));
  }
  // A message as a stream of events, its text in two pieces.
  void stream(const std::string& text, const std::vector<Json>& calls = {}) { answer(streamed(text, calls, true)); }
  // The same, but broken off before its end.
  void stream_cut(const std::string& text) { answer(streamed(text, {}, false)); }
  // A message as one JSON object, behind a prompt of so many tokens.
  void whole(const std::string& text, const std::vector<Json>& calls = {}, int prompt_tokens = 11) {
    Json message = {{"role", "assistant"}, {"content", text}};
    if (!calls.empty()) message["tool_calls"] = calls;
    const Json body = {{"model", "scripted"},
                       {"choices", {{{"message", message}, {"finish_reason", calls.empty() ? "stop" : "tool_calls"}}}},
                       {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", 5}}}};
    answer({200, {{"Content-Type", "application/json"}}, dump_json(body)});
  }
  static Json call(const std::string& id, const std::string& name, const Json& arguments) {
    return {
        {"id", id},
        {"type", "function"},
        {"function", {{"name", name}, {"arguments", arguments.is_string() ? arguments : Json(dump_json(arguments))}}}};
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  std::vector<Json> requests() {
    std::lock_guard lock(mutex_);
    std::vector<Json> bodies;
    for (const auto& request : requests_) bodies.push_back(parse_json(request.body).value_or(Json()));
    return bodies;
  }
  std::string header(size_t request, const std::string& name) {
    std::lock_guard lock(mutex_);
    return std::string(requests_.at(request).header(name));
  }

 private:
  static wire::HttpResponse streamed(const std::string& text, const std::vector<Json>& calls, bool to_the_end) {
    std::string body = ": hello\n\n";
    const auto put = [&](const Json& delta, const Json& reason) {
      const Json chunk = {{"model", "scripted"},
                          {"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", reason}}}}};
      body += "data: " + dump_json(chunk) + "\r\n\r\n";
    };
    put({{"role", "assistant"}, {"content", text.substr(0, text.size() / 2)}}, nullptr);
    put({{"content", text.substr(text.size() / 2)}}, nullptr);
    for (size_t i = 0; i < calls.size(); ++i) {
      Json piece = calls[i];
      piece["index"] = i;
      put({{"tool_calls", {piece}}}, nullptr);
    }
    if (to_the_end) {
      put(Json::object(), calls.empty() ? "stop" : "tool_calls");
      body += R"(data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":5}})"
              "\n\ndata: [DONE]\n\n";
    }
    return {200, {{"Content-Type", "text/event-stream; charset=utf-8"}}, body};
  }

  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::mutex mutex_;
  std::deque<wire::HttpResponse> answers_;
  std::vector<wire::HttpRequest> requests_;
  std::vector<wire::HttpReply> waiting_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tandem
