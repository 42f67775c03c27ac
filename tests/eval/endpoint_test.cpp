// Endpoints over real sockets, and the engine that samples share.
#include "eval/endpoint.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>

#include "eval/player.h"
#include "eval/shared_engine.h"
#include "tests/within.h"
#include "wire/http_server.h"

namespace tandem::eval {
namespace {

using testing::HasSubstr;

// Answers every request with a status and a body; a status of 0: never, of 429: come again in an hour.
class FixedServer {
 public:
  explicit FixedServer(int status, std::string body = "{}")
      : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = 1 << 20})), status_(status) {
    handler_.answer = [this, body](const wire::HttpRequest&, const wire::HttpReply& reply) {
      ++asked_;
      if (status_ == 0) return held_.push_back(reply);
      wire::HttpResponse response{status_, {{"Content-Type", "application/json"}}, body};
      if (status_ == 429) response.headers.emplace_back("Retry-After", "3600");
      reply(std::move(response));
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~FixedServer() {
    stop_ = true;
    thread_.join();
    held_.clear();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  int asked() const { return asked_; }

 private:
  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::vector<wire::HttpReply> held_;
  const int status_;
  std::atomic<int> asked_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

EndpointTerms terms_of(std::vector<std::string> urls) {
  return {.urls = std::move(urls), .model = "m", .key = "", .tools = {"read_file"}};
}

std::string told_by_watch(const EndpointTerms& terms) {
  const SystemClock clock;
  EndpointSource source(terms, clock);
  std::promise<std::string> promise;
  auto told = promise.get_future();
  const EndpointWatch watch(
      terms, source, clock, [&](std::string why) { promise.set_value(std::move(why)); }, 300ms);
  return told.wait_for(30s) == std::future_status::ready ? told.get() : "";
}

TEST(EndpointWatch, a_server_that_nobody_listens_at_is_told_and_so_is_a_proxy_without_what_is_behind_it) {
  const std::string gone = "http://127.0.0.1:1";  // no port that the system gives to a test beside this one
  EXPECT_THAT(told_by_watch(terms_of({gone})), HasSubstr("no server has answered for"));
  const FixedServer proxy(502);
  EXPECT_THAT(told_by_watch(terms_of({gone, proxy.url()})), HasSubstr("it answers 502"));
}

TEST(EndpointWatch, a_server_that_answers_anything_is_there_be_it_the_second_one) {
  const FixedServer server(404);
  const auto terms = terms_of({"http://127.0.0.1:1", server.url()});
  const SystemClock clock;
  EndpointSource source(terms, clock);
  std::atomic<bool> told{false};
  {
    const EndpointWatch watch(
        terms, source, clock, [&](const std::string&) { told = true; }, 300ms);
    EXPECT_TRUE(within(30s, [&] { return server.asked() >= 8 || told; }));
  }
  EXPECT_FALSE(told);
  EXPECT_THAT(source.urls(), testing::ElementsAre(server.url(), "http://127.0.0.1:1")) << "who is there is asked first";
}

TEST(EndpointSource, the_only_model_of_a_server_needs_no_name_and_one_of_several_does) {
  const FixedServer one(200, R"({"data":[{"id":"tiny"}]})"), two(200, R"({"data":[{"id":"a"},{"id":"b"}]})");
  EXPECT_EQ(only_model_of(terms_of({one.url()})).value_or(""), "tiny");
  const auto several = only_model_of(terms_of({two.url()}));
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().to_string(), HasSubstr("a, b"));
  const FixedServer none(200, "no JSON");
  EXPECT_FALSE(only_model_of(terms_of({none.url()})));
}

TEST(EndpointSource, requests_beyond_the_limit_of_a_minute_wait_and_stop_when_asked_to) {
  auto terms = terms_of({"http://127.0.0.1:1"});
  terms.requests_per_minute = 2;
  const ManualClock clock;
  EndpointSource source(terms, clock);
  EXPECT_TRUE(source.wait_for_turn(terms.urls[0], {}));
  EXPECT_TRUE(source.wait_for_turn(terms.urls[0], {}));
  std::stop_source stop;
  auto third = std::async(std::launch::async, [&] { return source.wait_for_turn(terms.urls[0], stop.get_token()); });
  EXPECT_EQ(third.wait_for(50ms), std::future_status::timeout);
  stop.request_stop();
  EXPECT_FALSE(third.get());
}

TEST(EndpointSource, each_server_has_a_limit_of_its_own) {
  auto terms = terms_of({"http://a", "http://b", "http://c"});
  terms.requests_per_minute = 1;
  terms.requests_per_minute_of = {{"http://b", 3}, {"http://c", 0}};
  ManualClock clock;
  EndpointSource source(terms, clock);
  // Whether it may be sent at once: who waits is stopped.
  const auto at_once = [&](const std::string& url) {
    std::stop_source stop;
    auto turn = std::async(std::launch::async, [&] { return source.wait_for_turn(url, stop.get_token()); });
    if (turn.wait_for(50ms) == std::future_status::timeout) stop.request_stop();
    return turn.get();
  };
  EXPECT_TRUE(source.wait_for_turn("http://a", {}));
  EXPECT_FALSE(at_once("http://a"));
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(source.wait_for_turn("http://b", {})) << "what others were sent is nothing to it";
  EXPECT_FALSE(at_once("http://b"));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(source.wait_for_turn("http://c", {}));
  clock.advance(60s);
  EXPECT_TRUE(source.wait_for_turn("http://a", {}));
}

TEST(EndpointSource, a_request_counts_for_the_server_that_it_is_sent_to) {
  const FixedServer busy(429), answers(200, R"({"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]})");
  auto terms = terms_of({busy.url(), answers.url()});
  terms.requests_per_minute = 1;
  const ManualClock clock;
  EndpointSource source(terms, clock);
  const envs::Task task{.instruction = "Say yes."};
  auto model = source.begin(task, 1, {});
  ASSERT_TRUE(model);
  const auto turn = (*model)->turn({}, {}, {});
  ASSERT_TRUE(turn) << turn.error().to_string();
  EXPECT_EQ(turn->text, "yes");
  EXPECT_EQ(busy.asked(), 1);
  for (const auto& url : terms.urls) {
    std::stop_source stop;
    auto next = std::async(std::launch::async, [&] { return source.wait_for_turn(url, stop.get_token()); });
    EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout) << "its one request of this minute was sent";
    stop.request_stop();
    EXPECT_FALSE(next.get());
  }
}

TEST(EndpointTerms, limits_of_single_servers_name_one_and_a_number) {
  Suite suite;
  suite.endpoint.url = "http://a:1/v1?x=2";
  suite.endpoint.fallbacks = {"http://b"};
  suite.endpoint.requests_per_minute = 10;
  suite.endpoint.server_requests_per_minute = {"http://a:1/v1?x=2=60", "http://b=0"};
  const auto terms = endpoint_terms(suite);
  ASSERT_TRUE(terms) << terms.error().to_string();
  EXPECT_EQ(terms->requests_per_minute, 10);
  EXPECT_EQ(terms->requests_per_minute_of, (std::map<std::string, int>{{"http://a:1/v1?x=2", 60}, {"http://b", 0}}));
  for (const char* wrong : {"http://c=5", "http://b", "http://b=", "http://b=-1", "http://b=5x", ""}) {
    suite.endpoint.server_requests_per_minute = {wrong};
    const auto refused = endpoint_terms(suite);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_THAT(refused.error().to_string(), HasSubstr("endpoint.server_requests_per_minute")) << wrong;
  }
}

TEST(Player, ends_of_an_agent_have_the_outcomes_of_the_platform) {
  using rollout::AgentEnd;
  using rollout::Outcome;
  EXPECT_EQ(outcome_of(AgentEnd::kAnswered, {}), Outcome::kCompleted);
  EXPECT_EQ(outcome_of(AgentEnd::kChanged, {}), Outcome::kCompleted);
  EXPECT_EQ(outcome_of(AgentEnd::kTruncated, {}), Outcome::kTruncated);
  EXPECT_EQ(outcome_of(AgentEnd::kTurns, {}), Outcome::kTruncated);
  EXPECT_EQ(outcome_of(AgentEnd::kTime, {}), Outcome::kTimeout);
  EXPECT_EQ(outcome_of(AgentEnd::kInterrupted, {}), Outcome::kCancelled);
  EXPECT_EQ(outcome_of(AgentEnd::kFailed, Status::unavailable("no answer")), Outcome::kInfraError);
  EXPECT_EQ(outcome_of(AgentEnd::kFailed, Status::unavailable("400: This model's maximum context length is 2048")),
            Outcome::kTruncated);
}

TEST(Player, a_seed_is_a_function_of_suite_task_and_sample) {
  EXPECT_EQ(seed_of_sample(1, "a", 0), seed_of_sample(1, "a", 0));
  std::set<uint64_t> seeds;
  for (uint64_t suite : {1, 2}) {
    for (const char* task : {"a", "b"}) {
      for (int sample = 0; sample < 4; ++sample) seeds.insert(seed_of_sample(suite, task, sample));
    }
  }
  EXPECT_EQ(seeds.size(), 16u);
  EXPECT_LT(*seeds.rbegin(), uint64_t{1} << 31);
}

}  // namespace
}  // namespace tandem::eval
