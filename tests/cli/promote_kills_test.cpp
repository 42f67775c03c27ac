// The server of a promotion is killed in each phase: it comes back with one whole version, and the command goes on.
#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>

#include "tests/cli/promote_fixture.h"
#include "wire/http_server.h"

namespace tandem {
namespace {

// The address of a server that comes back at another port. It passes requests on, one at a time.
class Front {
 public:
  // The answer; nothing where it is lost: the connection closes.
  using Pass = std::function<std::optional<wire::HttpResponse>(const wire::HttpRequest&)>;
  explicit Front(Pass pass)
      : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{1} << 20})), pass_(std::move(pass)) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      if (auto response = pass_(request)) reply(std::move(*response));
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~Front() {
    stop_ = true;
    thread_.join();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_.port()); }

 private:
  wire::HttpServer server_;
  Pass pass_;
  wire::HttpHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Kill {
  enum class When : uint8_t { kBefore, kWhile, kAfter };  // the server's work on the request

  std::string name, path;
  Json body = Json::object();  // that the request's has
  When when = When::kAfter;
  // Whether the work has begun, for kWhile: by the state of the server and whether a promoted version is kept.
  bool (*has_begun)(const Json& state, bool kept) = nullptr;
  bool promoted = false;  // what the server has come to
  Arguments more = {};    // of the command
  bool is_refused = false;

  bool is_at(const wire::HttpRequest& request) const {
    if (request.path != path) return false;
    const Json has = parse_json(request.body).value_or(Json::object());
    for (const auto& [key, value] : body.items()) {
      if (!has.contains(key) || has[key] != value) return false;
    }
    return true;
  }
};

class PromoteKills : public Promote {
 protected:
  void expect_it_goes_on(Kill kill);
  void TearDown() override {
    clients_.clear();
    Promote::TearDown();
  }

  // Clients and the front wait at the lock until the server is back.
  void kill_server() {
    const std::lock_guard away(lock_);
    ++life_;
    server_->signal(SIGKILL);
    EXPECT_EQ(server_->wait(), -SIGKILL);
    start_server();
  }
  struct Live {
    std::string url;
    int life = 0;
  };
  Live live() const {
    const std::lock_guard there(lock_);
    return {url_, life_};
  }
  // Requests of many sessions. One that was under way at a kill is cut by it; no other one may fail.
  void start_clients() {
    for (int client = 0; client < 3; ++client) {
      clients_.emplace_back([this, client](const std::stop_token& stop) {
        for (int i = 0; !stop.stop_requested(); ++i) {
          const auto [url, life] = live();
          const auto answer =
              ask_at(url + "/v1/chat/completions", dump_json(asked(fmt::format("{}.{}", client, i % 40))));
          const Json said = answer.json();
          if (answer.status == 200 && said.contains("choices")) {
            const double logprob = first_logprob(said);
            const bool accepted = !kill_.is_refused || logprob == before_logprob_;
            ask_at(url + "/feedback", dump_json({{"id", said["id"]}, {"accepted", accepted}}));
            const std::lock_guard noting(lock_);
            versions_.insert(logprob);
          } else if (live().life == life) {
            ADD_FAILURE() << "a request failed that no kill has cut: " << answer.status << " " << answer.body;
          }
        }
      });
    }
  }
  // The server answers everything with one version: the promoted one, or the one before.
  void expect_whole(bool promoted) {
    const Json now = state();
    EXPECT_TRUE(now["candidate"].is_null()) << dump_json(now);
    EXPECT_EQ(now["share"], 0.0);
    EXPECT_EQ(now["current"]["directory"] != before_, promoted) << dump_json(now);
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(first_logprob(post("/v1/chat/completions", asked(fmt::format("s{}", i)))) != before_logprob_, promoted);
    }
  }
  Answer pass_on(const wire::HttpRequest& request) const {
    const std::string query = request.query.empty() ? "" : "?" + request.query;
    return ask_at(live().url + request.path + query, request.body, "the-admin", request.method);
  }
  std::optional<wire::HttpResponse> answer(const wire::HttpRequest& request) {
    const std::lock_guard gate(gate_);
    if (request.path == "/promotion/begin") ++loads_;
    if (killed_ || !kill_.is_at(request)) {
      const Answer answer = pass_on(request);
      return wire::HttpResponse{answer.status, {}, answer.body};
    }
    killed_ = true;
    std::jthread asking;
    if (kill_.when == Kill::When::kAfter) {
      EXPECT_EQ(pass_on(request).status, 200);
    }
    if (kill_.when == Kill::When::kWhile) {
      asking = std::jthread([&] { pass_on(request); });
      EXPECT_TRUE(within(60s, [&] { return kill_.has_begun(state(), fs::exists(root() / "promoted.json")); }));
    }
    kill_server();
    expect_whole(kill_.promoted);
    return std::nullopt;
  }

  std::mutex gate_;  // held: requests of the command wait
  Kill kill_;
  std::string before_;
  double before_logprob_ = 0;
  mutable std::mutex lock_;  // of all below; held while the server is away
  int life_ = 0;
  std::set<double> versions_;  // that clients were answered by, told apart by a logprob
  std::atomic<bool> killed_ = false;
  std::atomic<int> loads_ = 0;  // that the command asked for
};

// A promotion from its beginning to its end, with this kill.
void PromoteKills::expect_it_goes_on(Kill kill) {
  SCOPED_TRACE(kill.name);
  kill_ = std::move(kill);
  killed_ = false;
  loads_ = 0;
  versions_.clear();
  fs::remove_all(root() / "promotion");
  fs::remove(root() / "promoted.json");
  start_server();
  before_ = served();
  before_logprob_ = first_logprob(post("/v1/chat/completions", asked("a")));
  std::ofstream(root() / "task.yaml") << "instruction: Say something.\ncheck:\n  answer: \"1\"\nsolution:\n  answer: "
                                         "\"1\"\n";
  std::ofstream(root() / "suite.yaml") << "tasks: {path: task.yaml}\nsamples: 1\nlimits: {max_new_tokens: 8, seconds: "
                                          "60}\ngates: {min_pass_rate: 0}\n";
  start_clients();
  Front front([this](const wire::HttpRequest& request) { return answer(request); });
  Arguments arguments = promotion({"--max-slowdown", "1000"}, kill_.is_refused ? "400" : "20");
  *std::ranges::find(arguments, url_) = front.url();
  arguments.insert(arguments.begin(), TANDEM_BINARY);
  arguments.insert(arguments.end(), kill_.more.begin(), kill_.more.end());
  if (kill_.path.empty()) arguments.insert(arguments.end(), {"--suite", (root() / "suite.yaml").string()});
  std::unique_lock gate(gate_, std::defer_lock);
  if (kill_.path.empty()) gate.lock();
  Process command(arguments, output());
  if (kill_.path.empty()) {
    EXPECT_TRUE(within(60s, [&] { return fs::exists(root() / "promotion" / "evaluation"); })) << text(output());
    killed_ = true;
    kill_server();
    expect_whole(false);
    gate.unlock();
  }
  EXPECT_EQ(command.wait(120s), kill_.is_refused ? 4 : 0) << text(output());
  clients_.clear();
  EXPECT_TRUE(killed_);
  expect_whole(!kill_.is_refused);
  EXPECT_LE(versions_.size(), 2);
  const char* const verdict = kill_.is_refused ? "refused" : "promoted";
  EXPECT_EQ(json(root() / "promotion" / "promotion.json")["verdict"], verdict);
  EXPECT_EQ(std::ranges::count(audit(), "verdict", [](const Json& line) { return line["what"]; }), 1);
  EXPECT_EQ(fs::exists(root() / "promoted.json"), !kill_.is_refused);
  if (kill_.is_refused) {
    EXPECT_EQ(loads_, 1) << "what is refused is not tried again";
  }
}

using When = Kill::When;
const Json kPromote = {{"promote", true}}, kRefuse = {{"promote", false}};

TEST_F(PromoteKills, a_server_that_is_killed_before_the_trial_serves_the_version_before_and_the_command_goes_on) {
  // While it evaluates, the command asks the server nothing.
  expect_it_goes_on({.name = "evaluating", .path = ""});
  expect_it_goes_on({.name = "before it loads", .path = "/promotion/begin", .when = When::kBefore});
  expect_it_goes_on(
      {.name = "loading", .path = "/promotion/begin", .when = When::kWhile, .has_begun = [](const Json& state, bool) {
         return state["state"] != "none";
       }});
  expect_it_goes_on({.name = "loaded", .path = "/promotion/begin"});
}

TEST_F(PromoteKills, a_server_that_is_killed_at_a_share_serves_the_version_before_and_the_command_goes_on) {
  expect_it_goes_on(
      {.name = "copies", .path = "/promotion/share", .body = {{"shadow", true}}, .more = {"--shadow", "50"}});
  expect_it_goes_on({.name = "half", .path = "/promotion/share", .body = {{"share", 0.5}}});
  expect_it_goes_on({.name = "all", .path = "/promotion/share", .body = {{"share", 1.0}}});
}

TEST_F(PromoteKills, a_server_that_is_killed_as_it_promotes_serves_one_version_and_in_the_end_the_new_one) {
  expect_it_goes_on({.name = "before", .path = "/promotion/end", .body = kPromote, .when = When::kBefore});
  expect_it_goes_on({.name = "kept",
                     .path = "/promotion/end",
                     .body = kPromote,
                     .when = When::kWhile,
                     .has_begun = [](const Json&, bool kept) { return kept; },
                     .promoted = true});
  expect_it_goes_on({.name = "promoted", .path = "/promotion/end", .body = kPromote, .promoted = true});
}

TEST_F(PromoteKills, a_version_that_was_refused_is_not_tried_again_whenever_the_server_is_killed) {
  expect_it_goes_on(
      {.name = "before", .path = "/promotion/end", .body = kRefuse, .when = When::kBefore, .is_refused = true});
  expect_it_goes_on({.name = "let go", .path = "/promotion/end", .body = kRefuse, .is_refused = true});
}

}  // namespace
}  // namespace tandem
