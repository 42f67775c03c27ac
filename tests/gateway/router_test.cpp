#include "gateway/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/overloaded.h"
#include "base/random.h"

namespace tandem::gateway {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class RouterTest : public testing::Test {
 protected:
  void start(size_t upstreams, int slots = 64, int queue = 1024) {
    RouterSettings settings{.queue = queue};
    for (size_t i = 0; i < upstreams; ++i) settings.upstreams.push_back({.slots = slots, .seed = i});
    router_.emplace(settings);
    for (size_t i = 0; i < upstreams; ++i) step(Probed{.upstream = i, .models = {{"m"}}});
    sent_.clear();
  }
  std::vector<RouterAction> step(const RouterEvent& event) {
    auto actions = router_->step(event, now_);
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<Send>(&action)) sent_.emplace_back(*send);
      if (const auto* refuse = std::get_if<Refuse>(&action)) refused_.insert_or_assign(refuse->request, *refuse);
    }
    return actions;
  }
  // The upstream that a new request goes to.
  std::optional<size_t> ask(RequestNumber number, std::vector<uint64_t> prefix = {}) {
    sent_.clear();
    step(Arrived{.request = number, .model = "m", .key = "k", .prefix = std::move(prefix), .tokens = 10});
    return sent_.empty() ? std::nullopt : std::optional(sent_.back().upstream);
  }
  void answer(RequestNumber number) {
    step(Answering{.request = number});
    step(Answered{.request = number});
  }

  Time now_{1h};
  std::optional<Router> router_;
  std::vector<Send> sent_;
  std::map<RequestNumber, Refuse> refused_;
};

TEST_F(RouterTest, a_prompt_goes_where_its_beginning_was_computed) {
  start(4);
  std::map<uint64_t, size_t> home;
  RequestNumber number = 0;
  for (uint64_t session = 1; session <= 8; ++session) {
    home[session] = *ask(++number, {session});
    answer(number);
  }
  EXPECT_GT(std::set<size_t>({home[1], home[2], home[3], home[4], home[5], home[6], home[7], home[8]}).size(), 1u);
  for (uint64_t turn = 0; turn < 5; ++turn) {
    for (uint64_t session = 1; session <= 8; ++session) {
      std::vector<uint64_t> prefix;
      for (uint64_t i = 0; i <= turn; ++i) prefix.push_back(i * 100 + session);
      EXPECT_EQ(ask(++number, prefix), home[session]);
      answer(number);
    }
  }
}

TEST_F(RouterTest, unless_that_upstream_is_much_busier_than_others) {
  start(2, 4);
  const size_t home = *ask(1, {7});
  EXPECT_EQ(ask(2, {7, 2}), home);
  EXPECT_EQ(ask(3, {7, 3}), 1 - home) << "two and none";
  EXPECT_EQ(ask(4, {7, 4}), 1 - home) << "both have the beginning now";
}

TEST_F(RouterTest, what_fails_is_sent_elsewhere_and_nobody_else_notices) {
  start(3);
  const size_t first = *ask(1);
  const auto actions = step(Failed{.request = 1, .failure = Failure::kUnreachable});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_NE(sent_[1].upstream, first);
  EXPECT_TRUE(router_->health(first).broken());
  EXPECT_TRUE(std::ranges::any_of(actions, [](const auto& a) { return std::holds_alternative<Turned>(a); }));
  answer(1);
  EXPECT_TRUE(refused_.empty());
  for (RequestNumber i = 2; i < 20; ++i) EXPECT_NE(ask(i), first);
}

TEST_F(RouterTest, a_request_that_every_upstream_fails_is_refused_with_the_kind) {
  start(3);
  ask(1);
  for (int i = 0; i < 3; ++i) step(Failed{.request = 1, .failure = Failure::kFaulty});
  ASSERT_TRUE(refused_.contains(1));
  EXPECT_EQ(refused_[1].status, 502);
  EXPECT_THAT(refused_[1].why, HasSubstr("faulty"));
  ask(2);
  for (int i = 0; i < 3; ++i) step(Failed{.request = 2, .failure = Failure::kOverloaded, .retry_after = 9s});
  EXPECT_EQ(refused_[2].status, 429);
  EXPECT_EQ(refused_[2].retry_after, 9s);
  // All have as much as they take: a new one waits for them.
  EXPECT_FALSE(ask(3));
  EXPECT_EQ(router_->waiting(), 1u);
  now_ += 9s;
  step(Tick{});
  EXPECT_EQ(sent_.back().request, 3u);
  EXPECT_EQ(router_->requests(), 1u);
}

TEST_F(RouterTest, nothing_is_repeated_once_some_of_it_was_passed_on) {
  start(3);
  ask(1);
  step(Answering{.request = 1});
  step(Failed{.request = 1, .failure = Failure::kBroken, .begun = true});
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(refused_.empty()) << "its client has been told by who passed it on";
  EXPECT_EQ(router_->requests(), 0u);
}

TEST_F(RouterTest, repeats_of_failures_that_cost_are_at_most_a_fifth_of_requests) {
  start(8);
  uint64_t repeats = 0;
  RequestNumber number = 0;
  for (; number < 400;) {
    ask(++number);
    // One fails, in a row of answers that keep the circuits closed.
    if (sent_.empty()) continue;
    step(Failed{.request = number, .failure = Failure::kFaulty});
    if (!refused_.contains(number)) {
      ++repeats;
      answer(number);
    }
    for (size_t i = 0; i < 8; ++i) step(Probed{.upstream = i, .models = {{"m"}}});
  }
  EXPECT_GT(repeats, 50u);
  EXPECT_LE(repeats, 10 + number / 5);
}

TEST_F(RouterTest, where_none_can_be_asked_it_waits_and_is_refused_at_last) {
  start(2);
  ask(1);
  step(Failed{.request = 1, .failure = Failure::kUnreachable});
  step(Failed{.request = 1, .failure = Failure::kUnreachable});
  EXPECT_EQ(refused_[1].status, 503);
  EXPECT_FALSE(ask(2)) << "they are asked again in a second";
  EXPECT_FALSE(refused_.contains(2));
  now_ += 31s;
  step(Tick{});
  EXPECT_EQ(refused_[2].status, 503);
  ask(3);
  step(Probed{.upstream = 1, .models = {{"m"}}});
  ASSERT_FALSE(sent_.empty());
  EXPECT_EQ(sent_.back(), (Send{.request = 3, .upstream = 1}));
}

TEST_F(RouterTest, a_request_that_goes_on_from_an_answer_goes_to_who_has_it) {
  start(4);
  for (RequestNumber i = 1; i <= 4; ++i) {
    step(Arrived{.request = i, .model = "m", .key = "k", .only = 2});
    EXPECT_EQ(sent_.back(), (Send{.request = i, .upstream = 2}));
  }
  step(Failed{.request = 4, .failure = Failure::kUnreachable});
  EXPECT_EQ(refused_[4].status, 503);
  EXPECT_THAT(refused_[4].why, HasSubstr("goes on from"));
}

TEST_F(RouterTest, an_upstream_of_several_models_gets_no_more_than_its_limit) {
  start(1, 2);
  step(Probed{.upstream = 0, .models = {{"m", "n", "o"}}});
  sent_.clear();
  RequestNumber number = 0;
  for (const auto model : {"m", "n", "o", "m", "n", "o"})
    step(Arrived{.request = ++number, .model = model, .key = "k", .priority = serve::Priority::kAutocomplete});
  for (int ended = 0; ended < 6; ++ended) {
    EXPECT_EQ(router_->health(0).in_flight(), std::min(2, 6 - ended));
    answer(sent_[static_cast<size_t>(ended)].request);
  }
  EXPECT_EQ(sent_.size(), 6u);
  EXPECT_TRUE(refused_.empty());
}

TEST_F(RouterTest, a_full_queue_is_said_at_once) {
  start(1, 1, 2);
  EXPECT_TRUE(ask(1));
  EXPECT_FALSE(ask(2));
  EXPECT_FALSE(ask(3));
  EXPECT_FALSE(ask(4));
  EXPECT_EQ(refused_[4].status, 429);
  EXPECT_TRUE(refused_[4].retry_after);
  step(Gone{.request = 2});
  answer(1);
  EXPECT_EQ(sent_.back().request, 3u) << "the second has gone";
}

TEST_F(RouterTest, unknown_models_are_refused) {
  start(1);
  step(Arrived{.request = 1, .model = "other"});
  EXPECT_EQ(refused_[1].status, 404);
}

// Servers that hold so many at once, fewer while they are cold; one that is asked for more falls over with all it has.
struct SimulatedServer {
  bool up = true;
  Time since{};
  std::map<RequestNumber, Time> running;  // until
  int falls = 0;
  int bears(Time now) const { return now - since < 5s ? 4 : 16; }
};

TEST_F(RouterTest, one_of_ten_that_comes_back_does_not_fall_over) {
  start(10, 16);
  std::vector<SimulatedServer> servers(10);
  for (auto& server : servers) server.since = now_ - 1h;
  std::set<size_t> probes;
  RequestNumber last = 0;
  uint64_t answered = 0;
  const auto perform = [&](std::vector<RouterAction> actions) {
    for (size_t next = 0; next < actions.size(); ++next) {
      if (const auto* probe = std::get_if<Probe>(&actions[next])) probes.insert(probe->upstream);
      const auto* send = std::get_if<Send>(&actions[next]);
      if (send == nullptr) continue;
      SimulatedServer& server = servers[send->upstream];
      std::vector<RequestNumber> lost;
      if (!server.up) lost = {send->request};
      if (server.up) server.running[send->request] = now_ + 500ms;
      if (server.up && static_cast<int>(server.running.size()) > server.bears(now_)) {
        server.up = false;
        ++server.falls;
        for (const auto& [number, end] : server.running) lost.push_back(number);
        server.running.clear();
      }
      for (const RequestNumber number : lost) {
        const auto more = step(Failed{.request = number, .failure = Failure::kUnreachable});
        actions.insert(actions.end(), more.begin(), more.end());
      }
    }
  };
  const Time begin = now_;
  for (; now_ - begin < 60s; now_ += 10ms) {
    const Duration since = now_ - begin;
    if (since == 20s) {  // it is killed with all it has
      servers[3].up = false;
      const auto running = std::exchange(servers[3].running, {});
      for (const auto& [number, end] : running)
        perform(step(Failed{.request = number, .failure = Failure::kUnreachable}));
    }
    if (since == 30s) {
      servers[3].up = true;
      servers[3].since = now_;
    }
    for (size_t i = 0; i < servers.size(); ++i) {
      for (const auto& [number, end] : std::map(servers[i].running)) {
        if (end > now_) continue;
        servers[i].running.erase(number);
        perform(step(Answering{.request = number}));
        perform(step(Answered{.request = number}));
        ++answered;
      }
    }
    for (const size_t upstream : std::exchange(probes, {})) {
      Probed probed{.upstream = upstream};
      if (servers[upstream].up) probed.models = {{"m"}};
      perform(step(probed));
    }
    // Two requests each 10 ms: 100 at once, of 160 that ten servers bear.
    for (int i = 0; i < 2; ++i) perform(step(Arrived{.request = ++last, .model = "m", .key = "k", .tokens = 1}));
    perform(step(Tick{}));
  }
  for (const auto& server : servers) EXPECT_EQ(server.falls, 0);
  EXPECT_TRUE(refused_.empty());
  EXPECT_GE(answered + 200, last) << "all but those that run";
  EXPECT_GE(servers[3].running.size(), 5u) << "it has its share again";
}

// Whatever comes in whatever order: each request has one end, and nothing is counted twice.
TEST_F(RouterTest, each_request_ends_once_whatever_happens) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const size_t upstreams = 1 + random.below(5);
    start(upstreams, static_cast<int>(1 + random.below(8)), 20);
    refused_.clear();
    std::map<RequestNumber, size_t> running;
    std::set<RequestNumber> open, ended;
    RequestNumber last = 0;
    const auto take = [&](const std::vector<RouterAction>& actions) {
      for (const auto& action : actions) {
        std::visit(Overloaded{[&](const Send& send) {
                                EXPECT_TRUE(open.contains(send.request));
                                EXPECT_TRUE(running.emplace(send.request, send.upstream).second);
                              },
                              [&](const Refuse& refuse) {
                                EXPECT_EQ(open.erase(refuse.request), 1u);
                                EXPECT_TRUE(ended.insert(refuse.request).second);
                                EXPECT_FALSE(running.contains(refuse.request));
                              },
                              [](const auto&) {}},
                   action);
      }
    };
    const auto any = [&]() -> RequestNumber {
      if (running.empty() || random.chance(0.05)) return random.below(last + 2);  // some that are not there
      return std::next(running.begin(), static_cast<long>(random.below(running.size())))->first;
    };
    for (int i = 0; i < 2000; ++i) {
      const RequestNumber one = any();
      const bool runs = running.contains(one);
      switch (random.below(8)) {
        case 0:
        case 1:
          open.insert(++last);
          take(step(Arrived{.request = last,
                            .model = "m",
                            .key = std::to_string(random.below(3)),
                            .priority = static_cast<serve::Priority>(random.below(4)),
                            .prefix = {random.below(9)},
                            .tokens = 1}));
          break;
        case 2:
          take(step(Answering{.request = one}));
          break;
        case 3:
          if (runs) running.erase(one), open.erase(one), ended.insert(one);
          take(step(Answered{.request = one}));
          break;
        case 4: {
          const bool begun = random.chance(0.3);
          running.erase(one);
          if (runs && begun) open.erase(one), ended.insert(one);
          take(step(Failed{.request = one, .failure = static_cast<Failure>(random.below(6)), .begun = begun}));
          break;
        }
        case 5:
          running.erase(one);
          if (open.erase(one) > 0) ended.insert(one);
          take(step(Gone{.request = one}));
          break;
        case 6: {
          Probed probed{.upstream = random.below(upstreams)};
          if (random.chance(0.7)) probed.models = {{"m"}};
          take(step(probed));
          break;
        }
        default:
          now_ += random.below(3000) * 1ms;
          take(step(Tick{}));
      }
      EXPECT_EQ(router_->requests(), open.size());
    }
  }
}

TEST_F(RouterTest, what_lacks_the_model_is_asked_for_its_list_and_another_gets_the_request) {
  start(2);
  const size_t first = *ask(1);
  sent_.clear();
  step(Answering{.request = 1});  // the head of its 404
  step(Failed{.request = 1, .failure = Failure::kMissing});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].upstream, 1 - first);
  answer(1);
  EXPECT_TRUE(refused_.empty());
  EXPECT_TRUE(router_->any_open(now_)) << "it is no failure of the server";
  now_ += 1s;
  EXPECT_THAT(step(Tick{}), testing::Contains(testing::VariantWith<Probe>(Probe{.upstream = first})));
  step(Probed{.upstream = first, .models = {{"other"}}});
  EXPECT_EQ(*ask(2), 1 - first);
}

TEST_F(RouterTest, where_no_upstream_has_the_model_any_more_that_is_said) {
  start(2);
  ask(1);
  step(Failed{.request = 1, .failure = Failure::kMissing});
  step(Failed{.request = 1, .failure = Failure::kMissing});
  ASSERT_TRUE(refused_.contains(1));
  EXPECT_EQ(refused_[1].status, 404);
  EXPECT_THAT(refused_[1].why, HasSubstr("\"m\""));
  EXPECT_EQ(router_->health(0).in_flight() + router_->health(1).in_flight(), 0);
}

TEST_F(RouterTest, thousands_of_models_that_come_and_go_cost_little) {
  start(2);
  std::vector<std::string> names;
  for (int i = 0; i < 4096; ++i) names.push_back("model-" + std::to_string(i));
  step(Probed{.upstream = 0, .models = names});
  names.resize(10);
  names.emplace_back("m");
  names.emplace_back("m");
  step(Probed{.upstream = 0, .models = names});
  EXPECT_EQ(router_->all_models().size(), 11u);
  EXPECT_EQ(router_->models(0).size(), 11u);
  step(Arrived{.request = 1, .model = "model-5", .key = "k"});
  ASSERT_FALSE(sent_.empty());
  EXPECT_EQ(sent_.back().upstream, 0u) << "the other has not this one";
  // One that has gone while a request has it ends its requests all the same.
  step(Probed{.upstream = 0, .models = {{"m"}}});
  answer(1);
  step(Arrived{.request = 2, .model = "model-5", .key = "k"});
  ASSERT_TRUE(refused_.contains(2));
  EXPECT_EQ(router_->health(0).in_flight(), 0);
}

}  // namespace
}  // namespace tandem::gateway
