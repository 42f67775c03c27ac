// `tandem promote` where the server is lost again and again while it has the candidate: which may be what ends it.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/cli/run_fixture.h"
#include "wire/http_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

// What a server says of a promotion, by the book of docs/serving.md. Each request to `fatal` with a candidate ends its
// life, so often as it has lives: it answers nothing, and comes back as another server without the candidate.
class MortalServer {
 public:
  MortalServer(std::string fatal, int deaths)
      : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{1} << 20})),
        fatal_(std::move(fatal)),
        deaths_left_(deaths) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      if (const auto state = answer(request.path, parse_json(request.body).value_or(Json::object())))
        reply({200, {{"Content-Type", "application/json"}}, dump_json(*state)});
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~MortalServer() {
    stop_ = true;
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  int begun() const { return begun_; }  // how often a candidate was brought

 private:
  std::optional<Json> answer(const std::string& path, const Json& body) {
    const std::lock_guard lock(mutex_);
    if (path == "/promotion/begin") ++begun_;
    if (path == fatal_ && deaths_left_ > 0) {
      --deaths_left_;
      ++life_;
      candidate_ = nullptr;
      return std::nullopt;
    }
    if (path == "/promotion/begin") {
      candidate_ = {{"directory", body.at("directory")}, {"digest", body.at("digest")}, {"outcomes", outcomes(0)}};
    } else if (path == "/promotion/share") {
      candidate_["outcomes"] = outcomes(answers_ += 100);
    } else if (path == "/promotion/end") {
      if (body.at("promote") == true) served_ = candidate_;
      candidate_ = nullptr;
    }
    return Json{{"server", std::to_string(life_)},
                {"model", "m"},
                {"state", candidate_.is_null() ? "none" : "trial"},
                {"current", served_},
                {"candidate", candidate_}};
  }
  static Json outcomes(double answers) {
    const Json times = {{"count", answers}, {"sum", 0}, {"squares", 0}};
    return {{"answers", answers},
            {"errors", 0},
            {"accepted", 0},
            {"rejected", 0},
            {"log_first_token_seconds", times},
            {"log_seconds_per_token", times}};
  }

  wire::HttpServer server_;
  wire::HttpHandler handler_;
  const std::string fatal_;
  std::mutex mutex_;
  int deaths_left_, life_ = 1;
  double answers_ = 0;
  Json served_ = {{"directory", "/before"}, {"digest", "before"}, {"outcomes", outcomes(0)}}, candidate_;
  std::atomic<int> begun_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class PromoteLosses : public RunTest {
 protected:
  void SetUp() override { fs::remove_all(root() / "promotion"); }
  static int promote(const MortalServer& server) {
    const Arguments arguments = {TANDEM_BINARY,
                                 "promote",
                                 (root() / "model").string(),
                                 "--server",
                                 server.url(),
                                 "--out",
                                 (root() / "promotion").string(),
                                 "--shares",
                                 "50,100",
                                 "--answers",
                                 "20",
                                 "--seconds",
                                 "0"};
    return Process(arguments, output(), {"TANDEM_ADMIN_KEY=the-admin", "no_proxy=127.0.0.1"}).wait(120s);
  }
};

// Requests during which a server dies: it loads the candidate, has it on trial, or makes it the served one.
constexpr const char* kFatal[] = {"/promotion/begin", "/promotion/share", "/promotion/end"};

TEST_F(PromoteLosses, a_server_that_is_lost_four_times_is_gone_on_with) {
  for (const char* fatal : kFatal) {
    SetUp();
    MortalServer server(fatal, 4);
    EXPECT_EQ(promote(server), 0) << fatal << "\n" << text(output());
    EXPECT_THAT(text(output()), HasSubstr("promoted: "));
    EXPECT_EQ(server.begun(), 5) << fatal;
  }
}

TEST_F(PromoteLosses, the_fifth_loss_ends_the_command_with_5_and_the_same_command_goes_on) {
  for (const char* fatal : kFatal) {
    SetUp();
    MortalServer server(fatal, 5);
    EXPECT_EQ(promote(server), 5) << fatal << "\n" << text(output());
    EXPECT_THAT(text(output()), HasSubstr("undecided: the server was lost 5 times while it had the candidate; the same "
                                          "command goes on"))
        << fatal;
    EXPECT_EQ(server.begun(), 5) << fatal << ": it is not brought a sixth time";
    const std::string audit = text(root() / "promotion" / "audit.jsonl");
    EXPECT_THAT(audit, HasSubstr(R"("what":"undecided")")) << fatal;
    EXPECT_THAT(audit, Not(HasSubstr(R"("what":"verdict")"))) << fatal << ": nothing was decided";
    EXPECT_EQ(promote(server), 0) << fatal << "\n" << text(output());
    EXPECT_EQ(server.begun(), 6) << fatal;
  }
}

}  // namespace
}  // namespace tandem
