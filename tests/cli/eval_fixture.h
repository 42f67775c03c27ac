// Evaluations of the real binary for tests: a server that answers, a suite of eight tasks, and what they leave.
#pragma once

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/cli/run_fixture.h"
#include "wire/http_server.h"

namespace tandem {

// A server of chat completions whose model "good" knows the answer to every task, and "bad" only to the first two.
class AnsweringServer {
 public:
  AnsweringServer() : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{16} << 20})) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      answer(request, reply);
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~AnsweringServer() {
    stop_ = true;
    thread_.join();
    held_.clear();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  size_t asked() const { return asked_; }

  // Answers so many requests, then holds the others.
  void hold_after(int answers) { left_ = answers; }
  // Refuses everything with this status and asks for a pause of an hour; 0: answers again.
  void refuse_with(int status) { refusal_ = status; }
  // Answers with this, which is no answer, of the type that it says; empty: answers again.
  void talk_nonsense(const std::string& type, const std::string& body) {
    std::lock_guard lock(mutex_);
    nonsense_ = {type, body};
  }
  // Says that this model has answered.
  void call_itself(const std::string& name) {
    std::lock_guard lock(mutex_);
    called_ = name;
  }

 private:
  void answer(const wire::HttpRequest& request, const wire::HttpReply& reply) {
    if (request.method == "GET") return reply({200, {}, R"({"data":[{"id":"good"}]})"});
    ++asked_;
    if (refusal_ != 0) return reply({refusal_, {{"Retry-After", "3600"}}, R"({"error":{"message":"too much"}})"});
    std::lock_guard lock(mutex_);
    if (!nonsense_.first.empty()) return reply({200, {{"Content-Type", nonsense_.first}}, nonsense_.second});
    if (left_ == 0) return held_.push_back(reply);
    if (left_ > 0) --left_;
    const Json body = parse_json(request.body).value_or(Json::object());
    if (body.at("model") == "caller") return call_or_answer(body, reply);
    const auto text = body.at("messages").back().at("content").get<std::string>();
    const size_t at = text.find("number ") + 7;
    const int number = std::stoi(text.substr(at));
    const bool knows = body.at("model") == "good" || number < 2;
    const Json answer = {
        {"model", called_.empty() ? body.at("model") : Json(called_)},
        {"choices",
         {{{"message", {{"role", "assistant"}, {"content", std::to_string(knows ? number * 11 + 100 : 0)}}},
           {"finish_reason", "stop"}}}},
        {"usage", {{"prompt_tokens", 30}, {"completion_tokens", 2}}}};
    reply({200, {{"Content-Type", "application/json"}}, dump_json(answer)});
  }

  // The model "caller" calls the last tool that it is offered, then answers with the result.
  static void call_or_answer(const Json& body, const wire::HttpReply& reply) {
    const Json& last = body.at("messages").back();
    Json message = {{"role", "assistant"}, {"content", last.at("content")}};
    const bool answers = last.at("role") == "tool";
    if (!answers) {
      const Json name = body.at("tools").back().at("function").at("name");
      message = {{"role", "assistant"}, {"content", nullptr}};
      message["tool_calls"] =
          Json::array({{{"id", "c"}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}}});
    }
    const Json choice = {{"message", message}, {"finish_reason", answers ? "stop" : "tool_calls"}};
    reply(
        {200, {{"Content-Type", "application/json"}}, dump_json({{"model", "m"}, {"choices", Json::array({choice})}})});
  }

  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::vector<wire::HttpReply> held_;
  std::atomic<size_t> asked_{0};
  std::atomic<int> left_{-1}, refusal_{0};
  std::mutex mutex_;
  std::pair<std::string, std::string> nonsense_;  // type, body
  std::string called_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The tokens that a transcript's turns saw and sampled.
inline Json tokens_of(const fs::path& transcript) {
  const Json whole = json(transcript);
  Json turns = Json::array();
  for (const Json& step : whole.value("steps", Json::array())) {
    if (step.contains("metrics"))
      turns.push_back({step.at("metrics").at("prompt_token_ids"), step.at("metrics").at("completion_token_ids")});
  }
  return turns;
}

class EvalTest : public RunTest {
 protected:
  static constexpr int kTasks = 8;

  void SetUp() override {
    fs::remove_all(root() / "suite");
    fs::remove_all(nights());
    fs::create_directories(root() / "suite/tasks");
    for (int i = 0; i < kTasks; ++i) {
      std::ofstream(root() / "suite/tasks" / ("t" + std::to_string(i) + ".yaml"))
          << "instruction: What is the value of number " << i << "? Answer with it alone.\n"
          << "files:\n  notes.txt: hello\ncheck:\n  answer: \"" << i * 11 + 100 << "\"\n"
          << "solution:\n  answer: \"" << i * 11 + 100 << "\"\n";
    }
  }
  static fs::path nights() { return root() / "nights"; }
  static fs::path night(const std::string& name) { return nights() / name; }
  static std::string suite(const std::string& more) {
    const auto path = root() / "suite/nightly.yaml";
    std::ofstream(path) << more;
    return path.string();
  }
  static std::string suite_of(const AnsweringServer& server, const std::string& more = "") {
    return suite("endpoint:\n  url: " + server.url() +
                 "\n  model: good\ntasks:\n  path: tasks\nsamples: 2\nconcurrency: 4\nlimits: {seconds: 30}\n" + more);
  }
  static Arguments eval(Arguments more) {
    more.insert(more.begin(), {TANDEM_BINARY, "eval"});
    return more;
  }
  static int run_eval(Arguments more) {
    return Process(eval(std::move(more)), output(), {"no_proxy=127.0.0.1"}).wait(120s);
  }
  static std::vector<std::string> lines(const fs::path& file) {
    const auto all = text(file);
    const auto views = split_lines(all);
    return {views.begin(), views.end()};
  }
};

}  // namespace tandem
