// The server of a promotion is killed in each phase: it comes back with one whole version, and the command goes on.
#include <algorithm>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>

#include "tests/cli/promote_fixture.h"
#include "wire/http_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// Passes the command's requests on, one at a time, and calls the test before and after each. True: its answer is lost.
class Between {
 public:
  using Pass = std::function<std::optional<wire::HttpResponse>(const wire::HttpRequest&)>;
  explicit Between(Pass pass)
      : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{1} << 20})), pass_(std::move(pass)) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      // A reply that nobody calls closes the connection.
      if (auto response = pass_(request)) reply(std::move(*response));
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~Between() {
    stop_ = true;
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

 private:
  wire::HttpServer server_;
  Pass pass_;
  wire::HttpHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class PromoteKills : public Promote {
 protected:
  // A request of the command, and when the server is killed: before it hears it, or before its answer is heard.
  struct Kill {
    std::string name, path;
    Json body;  // that the request's has
    bool heard = false;
  };

  void SetUp() override {
    Promote::SetUp();
    start_server();
    before_ = served();
    before_logprob_ = first_logprob(post("/v1/chat/completions", asked("a")));
  }
  void kill_server() {
    server_->signal(SIGKILL);
    EXPECT_EQ(server_->wait(), -SIGKILL);
    const std::string port = url_.substr(url_.rfind(':') + 1);
    server_ = std::make_unique<Process>(
        Arguments{TANDEM_BINARY, "serve", "--model", "tiny=" + (root() / "model").string(), "--port", port,
                  "--admin-key-file", (root() / "admins").string(), "--candidates", (root() / "candidates").string(),
                  "--promoted", (root() / "promoted.json").string()},
        root() / "serve.out");
    EXPECT_TRUE(within(60s, [&] { return ask("/ready", "", "", "GET").status == 200; })) << text(root() / "serve.out");
  }
  // The server answers everything with one version: the promoted one, or the one before.
  void expect_whole(bool promoted, const std::string& where) {
    const Json now = state();
    EXPECT_TRUE(now["candidate"].is_null()) << where << ": " << dump_json(now);
    EXPECT_EQ(now["share"], 0.0) << where;
    EXPECT_EQ(now["current"]["directory"] == before_, !promoted) << where << ": " << dump_json(now);
    for (int i = 0; i < 8; ++i) {
      const Json answer = post("/v1/chat/completions", asked(fmt::format("s{}", i)));
      EXPECT_EQ(first_logprob(answer) == before_logprob_, !promoted) << where;
    }
  }
  static bool is_of(const Kill& kill, const wire::HttpRequest& request) {
    if (request.path != kill.path) return false;
    const Json body = parse_json(request.body).value_or(Json::object());
    for (const auto& [key, value] : kill.body.items()) {
      if (!body.contains(key) || body[key] != value) return false;
    }
    return true;
  }
  // The command's requests come through here, and each of the kills happens once.
  Between::Pass through(std::vector<Kill> kills) {
    kills_ = std::move(kills);
    return [this](const wire::HttpRequest& request) -> std::optional<wire::HttpResponse> {
      const std::lock_guard gate(gate_);
      const auto kill = std::ranges::find_if(kills_, [&](const Kill& one) { return is_of(one, request); });
      const std::string query = request.query.empty() ? "" : "?" + request.query;
      const bool reaches = kill == kills_.end() || kill->heard;
      Answer answer;
      if (reaches) answer = ask(request.path + query, request.body, "the-admin", request.method);
      if (kill == kills_.end()) return wire::HttpResponse{answer.status, {}, answer.body};
      EXPECT_EQ(answer.status, reaches ? 200 : 0) << kill->name << ": " << answer.body;
      kill_server();
      expect_whole(kill->heard && kill->body.value("promote", false), kill->name);
      kills_.erase(kill);
      return std::nullopt;
    };
  }
  Arguments promotion_at(const std::string& url, Arguments more, const std::string& answers) const {
    Arguments arguments = promotion(std::move(more), answers);
    *std::ranges::find(arguments, url_) = url;
    return arguments;
  }
  std::string left() const {
    std::string names;
    for (const auto& kill : kills_) names += kill.name + ", ";
    return names;
  }

  std::string before_;
  double before_logprob_ = 0;
  std::vector<Kill> kills_;  // to come
  std::mutex gate_;          // whoever has it holds the command's requests back
};

TEST_F(PromoteKills, a_server_that_is_killed_in_each_phase_serves_one_version_and_the_command_promotes) {
  std::ofstream(root() / "task.yaml") << "instruction: Say something.\ncheck:\n  answer: \"1\"\nsolution:\n  answer: "
                                         "\"1\"\n";
  std::ofstream(root() / "suite.yaml") << "tasks: {path: task.yaml}\nsamples: 1\nlimits: {max_new_tokens: 8, seconds: "
                                          "60}\ngates: {min_pass_rate: 0}\n";
  Between between(through({
      {"loaded", "/promotion/begin", Json::object(), true},
      {"copies", "/promotion/share", {{"shadow", true}}, true},
      {"half", "/promotion/share", {{"share", 0.5}, {"shadow", false}}, true},
      {"all", "/promotion/share", {{"share", 1.0}}, true},
      {"verdict not heard", "/promotion/end", {{"promote", true}}, false},
      {"verdict heard", "/promotion/end", {{"promote", true}}, true},
  }));
  start_traffic();
  Arguments arguments = promotion_at(
      between.url(), {"--max-slowdown", "1000", "--shadow", "50", "--suite", (root() / "suite.yaml").string()}, "20");
  arguments.insert(arguments.begin(), TANDEM_BINARY);
  std::unique_lock gate(gate_);
  Process command(arguments, output());
  // The suite asks the server nothing.
  EXPECT_TRUE(within(60s, [&] { return fs::exists(root() / "promotion" / "evaluation"); })) << text(output());
  kill_server();
  expect_whole(false, "evaluating");
  gate.unlock();
  EXPECT_EQ(command.wait(180s), 0) << text(output());
  EXPECT_TRUE(kills_.empty()) << left();
  stop_traffic();
  expect_whole(true, "promoted");
  EXPECT_EQ(audit().back()["what"], "verdict");
  EXPECT_EQ(json(root() / "promotion" / "promotion.json")["verdict"], "promoted");
}

TEST_F(PromoteKills, a_server_that_is_killed_while_a_candidate_goes_back_serves_the_version_before_and_is_told_again) {
  Between between(through({
      {"refusal not heard", "/promotion/end", {{"promote", false}}, false},
      {"refusal heard", "/promotion/end", {{"promote", false}}, true},
  }));
  start_traffic([this](double logprob) { return logprob == before_logprob_; });
  EXPECT_EQ(tandem(promotion_at(between.url(), {"--max-slowdown", "1000"}, "400")), 4) << text(output());
  EXPECT_TRUE(kills_.empty()) << left();
  EXPECT_THAT(text(output()), HasSubstr("accepted answers: -100.0 points"));
  stop_traffic();
  expect_whole(false, "refused");
  EXPECT_FALSE(fs::exists(root() / "promoted.json"));
}

}  // namespace
}  // namespace tandem
