// One door for several servers, with real processes on both sides.
#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>

#include "serve/keys.h"
#include "tests/cli/serve_fixture.h"
#include "wire/http_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class ServeGateway : public Serve {
 protected:
  struct Replica {
    std::unique_ptr<Process> process;
    std::string url;
  };
  static Json first_line(const fs::path& path) {
    const auto all = text(path);
    for (const auto one : split_lines(all)) {
      const auto parsed = parse_json(one);
      if (parsed && parsed->is_object()) return *parsed;
    }
    return Json::object();
  }
  Process& start_replica(size_t number, const std::string& port = "0") {
    if (replicas_.size() <= number) replicas_.resize(number + 1);
    Replica& replica = replicas_[number];
    const fs::path out = root() / ("replica-" + std::to_string(number));
    fs::remove(out);
    replica.process =
        std::make_unique<Process>(Arguments{TANDEM_BINARY, "serve", "--model", "tiny=" + (root() / "model").string(),
                                            "--port", port, "--threads", "1"},
                                  out);
    EXPECT_TRUE(within(60s, [&] { return first_line(out).contains("url") || !replica.process->running(); }));
    replica.url = first_line(out).value("url", "");
    return *replica.process;
  }
  void start_gateway(const Arguments& upstreams, const Arguments& more = {}) {
    Arguments arguments = {TANDEM_BINARY, "serve", "--port", "0"};
    for (const auto& one : upstreams) arguments.insert(arguments.end(), {"--upstream", one});
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_.reset();
    fs::remove(root() / "serve.out");
    server_ = std::make_unique<Process>(arguments, root() / "serve.out");
    ASSERT_TRUE(within(60s, [&] { return line().contains("url") || !server_->running(); }));
    ASSERT_TRUE(line().contains("url")) << text(root() / "serve.out");
    url_ = line()["url"].get<std::string>();
  }
  Arguments urls() const {
    Arguments all;
    for (const auto& replica : replicas_) all.push_back(replica.url);
    return all;
  }
  // A metric of one upstream, by its URL.
  double metric_of(const std::string& name, const std::string& url) const {
    const auto page = ask("/metrics", "", "", "GET").body;
    const std::string start = name + "{upstream=\"" + url.substr(url.find("://") + 3) + "\"}";
    for (const auto one : split_lines(page)) {
      if (one.starts_with(start)) return std::stod(std::string(one.substr(one.rfind(' ') + 1)));
    }
    return -1;
  }
  std::vector<Replica> replicas_;
};

TEST_F(ServeGateway, answers_are_those_of_a_server_and_a_conversation_stays_where_its_pages_are) {
  for (size_t i = 0; i < 3; ++i) start_replica(i);
  start_gateway(urls());
  EXPECT_EQ(line()["models"], Json::array({"tiny"}));
  const Json body = chat("What is it?", {{"max_tokens", 6}, {"seed", 3}, {"logprobs", true}});
  const std::string door = url_;
  const Json through = post("/v1/chat/completions", body);
  const auto pieces = stream("/v1/chat/completions", body);
  url_ = replicas_[0].url;
  const Json direct = post("/v1/chat/completions", body);
  url_ = door;
  EXPECT_EQ(through["choices"], direct["choices"]);
  EXPECT_EQ(through["usage"]["completion_tokens"], direct["usage"]["completion_tokens"]);
  EXPECT_GE(pieces.size(), 2u);
  // Turns of one conversation.
  Json messages = Json::array();
  for (int turn = 0; turn < 4; ++turn) {
    messages.push_back({{"role", "user"}, {"content", "turn " + std::to_string(turn)}});
    Json asked = {{"model", "tiny"}, {"messages", messages}, {"max_tokens", 4}};
    const Json answer = post("/v1/chat/completions", asked);
    messages.push_back({{"role", "assistant"}, {"content", "said"}});
  }
  int with_turns = 0;
  for (const auto& replica : replicas_) with_turns += metric_of("tandem_upstream_answered_total", replica.url) >= 4;
  EXPECT_EQ(with_turns, 1) << ask("/metrics", "", "", "GET").body;
  EXPECT_EQ(ask("/v1/models/tiny", "", "", "GET").status, 200);
  EXPECT_EQ(ask("/v1/chat/completions", R"({"model":"other","messages":[]})").status, 404);
  EXPECT_EQ(ask("/v1/chat/completions", "{").status, 400);
  EXPECT_EQ(ask("/v1/chat/completions", "", "", "GET").status, 405);
  EXPECT_EQ(ask("/nothing", "", "", "GET").status, 404);
  // What a server refuses is passed on as it is.
  EXPECT_THAT(ask("/v1/chat/completions", dump_json(chat("x", {{"temperature", -1}}))).body, HasSubstr("temperature"));
  EXPECT_EQ(ask("/tokenize", R"({"model":"tiny","prompt":"a b"})").status, 200);
}

TEST_F(ServeGateway, an_answer_that_is_gone_on_from_stays_where_it_is) {
  for (size_t i = 0; i < 2; ++i) start_replica(i);
  start_gateway(urls());
  const Json first = post("/v1/responses", {{"model", "tiny"}, {"input", "a"}, {"max_output_tokens", 4}});
  const std::string id = first["id"].get<std::string>();
  for (int i = 0; i < 4; ++i) {
    post("/v1/responses", {{"model", "tiny"}, {"input", "b"}, {"max_output_tokens", 4}, {"previous_response_id", id}});
  }
  EXPECT_EQ(ask("/v1/responses/" + id, "", "", "GET").status, 200);
  EXPECT_EQ(ask("/v1/responses/" + id, "", "", "DELETE").status, 200);
  EXPECT_EQ(ask("/v1/responses/nothing", "", "", "GET").status, 404);
}

TEST_F(ServeGateway, a_killed_server_costs_no_request_and_comes_back) {
  for (size_t i = 0; i < 3; ++i) start_replica(i);
  start_gateway(urls(), {"--config", [&] {
                           std::ofstream(root() / "gateway.yaml") << "serve:\n  upstream_probe_seconds: 0.5\n";
                           return (root() / "gateway.yaml").string();
                         }()});
  const std::string killed = replicas_[1].url;
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  std::mutex mutex;
  std::vector<std::string> wrong;
  for (int client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; !stop; ++i) {
        // No streams: one that has begun cannot be asked for again.
        const auto answer = ask("/v1/chat/completions",
                                dump_json(chat(std::to_string(client) + " " + std::to_string(i), {{"max_tokens", 4}})));
        if (answer.status == 200) ++answered;
        const std::lock_guard lock(mutex);
        if (answer.status != 200) wrong.push_back(answer.body);
      }
    });
  }
  const auto used = [&] { return metric_of("tandem_upstream_answered_total", killed); };
  EXPECT_TRUE(within(60s, [&] { return answered > 50 && used() > 5; }));
  replicas_[1].process->signal(SIGKILL);
  replicas_[1].process->wait();
  EXPECT_TRUE(within(60s, [&] { return metric_of("tandem_upstream_up", killed) == 0; }));
  const int before = answered;
  EXPECT_TRUE(within(60s, [&] { return answered > before + 50; }));
  const double of_killed = used();
  start_replica(1, killed.substr(killed.rfind(':') + 1));
  EXPECT_TRUE(within(60s, [&] { return used() > of_killed + 5; })) << text(root() / "serve.out");
  stop = true;
  for (auto& client : clients) client.join();
  EXPECT_TRUE(wrong.empty()) << wrong.front();
  EXPECT_TRUE(within(60s, [&] { return ask("/load", "", "", "GET").json()["server_load"] == Json(0); }));
}

TEST_F(ServeGateway, keys_end_at_the_door_and_use_is_written) {
  const auto editor = serve::make_key();
  std::ofstream(root() / "door.yaml") << "editor:\n  sha256: " << editor.sha256 << "\n  tokens_per_day: 100000\n";
  // A provider that says what it was sent, and whose rates bind.
  auto provider = *wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = 1 << 20});
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<wire::HttpRequest> got;
  wire::HttpHandler handler;
  handler.answer = [&](const wire::HttpRequest& request, const wire::HttpReply& reply) {
    if (request.path == "/v1/models") return reply({200, {}, R"({"data":[{"id":"gpt-x"},{"id":"gpt-y"}]})"});
    const std::lock_guard lock(mutex);
    got.push_back(request);
    reply({200,
           {{"Content-Type", "application/json"}, {"Set-Cookie", "a=b"}},
           R"({"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}})"});
  };
  std::thread serving([&] { EXPECT_TRUE(provider.serve(handler, stop)); });
  ::setenv("TANDEM_TEST_PROVIDER_KEY", "provider-secret", 1);
  std::ofstream(root() / "upstreams.yaml") << "provider:\n  url: http://127.0.0.1:" << provider.port()
                                           << "/v1\n  key_env: TANDEM_TEST_PROVIDER_KEY\n  models: [coder=gpt-y]\n";
  fs::remove(root() / "door.jsonl");
  start_gateway({}, {"--upstreams", (root() / "upstreams.yaml").string(), "--keys", (root() / "door.yaml").string(),
                     "--usage-log", (root() / "door.jsonl").string()});
  ::unsetenv("TANDEM_TEST_PROVIDER_KEY");
  EXPECT_EQ(ask("/v1/models", "", "", "GET").status, 401);
  const auto answer = ask("/v1/chat/completions", R"({"model":"coder","messages":[],"max_tokens":2})", editor.text);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(within(60s, [&] { return !text(root() / "door.jsonl").empty(); }));
  const Json used = first_line(root() / "door.jsonl");
  EXPECT_EQ(used["key"], "editor");
  EXPECT_EQ(used["model"], "coder");
  EXPECT_EQ(used["upstream"], "provider");
  EXPECT_EQ(used["prompt_tokens"], 11);
  EXPECT_EQ(used["answer_tokens"], 7);
  {
    const std::lock_guard lock(mutex);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].header("authorization"), "Bearer provider-secret");
    EXPECT_EQ(parse_json(got[0].body)->at("model"), "gpt-y");
    for (const auto& [name, value] : got[0].headers) EXPECT_THAT(value, testing::Not(HasSubstr(editor.text))) << name;
  }
  EXPECT_THAT(text(root() / "serve.out"), testing::Not(HasSubstr("provider-secret")));
  // One that has come through this gateway before is not handed on again.
  wire::OutgoingRequest again{.url = url_ + "/v1/chat/completions", .body = R"({"model":"coder","messages":[]})"};
  again.headers = {{"Authorization", "Bearer " + editor.text}, {"Via", std::string(got[0].header("via"))}};
  const auto head = wire::http_request(again, [](const auto&, std::string_view) { return Status(); }, {});
  ASSERT_TRUE(head) << head.error().to_string();
  EXPECT_EQ(head->status, 508);
  server_.reset();
  stop = true;
  serving.join();
}

TEST_F(ServeGateway, slow_requests_show_where_their_time_went_and_nothing_of_what_was_said) {
  std::ofstream(root() / "admins") << "an-admins-key\n";
  std::ofstream(root() / "traces.yaml") << "serve:\n  trace_slower_than: 0\n";
  const Arguments more = {"--admin-key-file", (root() / "admins").string(), "--config",
                          (root() / "traces.yaml").string()};
  start(more);
  const std::string direct = url_;
  const auto server = std::move(server_);
  start_gateway({direct}, more);
  const auto said = ask("/v1/chat/completions", dump_json(chat("a-planted-word", {{"max_tokens", 4}, {"n", 2}})));
  EXPECT_EQ(said.status, 200);
  const auto names = [&](const std::string& url) {
    url_ = url;
    const auto traces = ask("/traces?slower_than=0", "", "an-admins-key", "GET");
    EXPECT_THAT(traces.body, testing::Not(HasSubstr("a-planted-word")));
    std::vector<std::string> all;
    for (const Json& event : traces.json().value("traceEvents", Json::array())) {
      all.push_back(event["name"].get<std::string>());
      EXPECT_GE(event.value("dur", 0.0), 0);
    }
    return all;
  };
  const std::string door = url_;
  EXPECT_TRUE(within(60s, [&] { return names(direct).size() > 4 && names(door).size() > 2; }));
  EXPECT_THAT(names(direct), testing::ElementsAre("process_name", "request", "read", "queue", "prefill", "decode",
                                                  "queue", "prefill", "decode"));
  EXPECT_THAT(names(door), testing::ElementsAre("process_name", "request", "queue", "first byte", "answer"));
  EXPECT_EQ(ask("/traces", "", "", "GET").status, 403);
  EXPECT_EQ(ask("/traces?slower_than=x", "", "an-admins-key", "GET").status, 400);
}

// What the board for Grafana asks for is there.
TEST_F(ServeGateway, the_board_shows_metrics_that_there_are) {
  start();
  const std::string direct = url_;
  const auto server = std::move(server_);
  start_gateway({direct});
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(chat("x", {{"max_tokens", 4}}))).status, 200);
  std::string pages = ask("/metrics", "", "", "GET").body;
  url_ = direct;
  pages += ask("/metrics", "", "", "GET").body;
  const std::string board = text(fs::path(TANDEM_SOURCE_DIR) / "docs/grafana/serving.json");
  ASSERT_TRUE(parse_json(board));
  std::set<std::string> asked;
  for (size_t at = board.find("tandem_"); at != std::string::npos; at = board.find("tandem_", at + 1))
    asked.insert(board.substr(at, board.find_first_not_of("abcdefghijklmnopqrstuvwxyz_2", at) - at));
  EXPECT_GT(asked.size(), 25u);
  for (const std::string& name : asked) {
    // Adapters have their part of the page once there are some.
    const std::string family = name.ends_with("_bucket") ? name.substr(0, name.rfind('_')) : name;
    EXPECT_TRUE(name.starts_with("tandem_adapter_") || pages.find("# TYPE " + family + " ") != std::string::npos)
        << name;
  }
}

TEST_F(ServeGateway, rules_of_admins_hold_here_too) {
  const auto chief = serve::make_key(), editor = serve::make_key();
  std::ofstream(root() / "door.yaml") << "chief:\n  sha256: " << chief.sha256
                                      << "\n  admin: true\neditor:\n  sha256: " << editor.sha256 << "\n";
  start_replica(0);
  start_gateway(urls(), {"--keys", (root() / "door.yaml").string()});
  const auto say = [&] { return ask("/v1/chat/completions", dump_json(chat("x", {{"max_tokens", 2}})), editor.text); };
  EXPECT_EQ(say().status, 200);
  EXPECT_EQ(ask("/upstreams", "", editor.text, "GET").status, 403);
  const Json upstreams = ask("/upstreams", "", chief.text, "GET").json();
  EXPECT_EQ(upstreams["upstreams"][0]["answered"], 1);
  ::setenv("TANDEM_ADMIN_KEY", chief.text.c_str(), 1);
  EXPECT_EQ(tandem({"serve", "ctl", "block", "key=editor", "--reason", "on leave", "--server", url_}), 0);
  const auto refused = say();
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("on leave"));
  EXPECT_EQ(tandem({"serve", "ctl", "allow", "key=editor", "--server", url_}), 0);
  ::unsetenv("TANDEM_ADMIN_KEY");
  EXPECT_EQ(say().status, 200);
}

TEST_F(ServeGateway, what_cannot_be_is_said_at_the_start) {
  EXPECT_EQ(tandem({"serve", "--upstream", "10.0.0.1:8000"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("is not a URL such as"));
  EXPECT_EQ(tandem({"serve", "--upstream", "http://127.0.0.1:1", "--model", (root() / "model").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("has no models of its own"));
  EXPECT_EQ(tandem({"serve", "--upstream", "http://127.0.0.1:1", "--upstream", "http://127.0.0.1:1"}), 2);
  EXPECT_EQ(tandem({"serve", "--upstream", "http://127.0.0.1:1", "--host", "0.0.0.0"}), 2);
}

TEST_F(ServeGateway, it_ends_when_it_is_told_to_although_no_upstream_was_ever_there) {
  server_ = std::make_unique<Process>(
      Arguments{TANDEM_BINARY, "serve", "--port", "0", "--upstream", "http://127.0.0.1:1"}, root() / "serve.out");
  EXPECT_TRUE(within(60s, [&] { return text(root() / "serve.out").find("cannot be asked") != std::string::npos; }));
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait(), 0);
}

}  // namespace
}  // namespace tandem
