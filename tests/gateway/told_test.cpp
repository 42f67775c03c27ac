// Upstreams that are processes of the same server: the router is told of them and guesses nothing.
#include <gmock/gmock.h>

#include <map>

#include "gateway/router.h"

namespace tandem::gateway {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ToldTest : public testing::Test {
 protected:
  ToldTest() {
    RouterSettings settings{.longest_wait = 30s};
    for (int i = 0; i < 2; ++i) settings.upstreams.push_back({.slots = 1000, .told = true});
    router_.emplace(settings);
    for (size_t i = 0; i < 2; ++i) tell(i, ProcessChange::State::kThere);
  }
  void step(const RouterEvent& event) {
    for (const auto& action : router_->step(event, now_)) {
      if (const auto* send = std::get_if<Send>(&action)) sent_.push_back(*send);
      if (const auto* refuse = std::get_if<Refuse>(&action)) refused_.insert_or_assign(refuse->request, *refuse);
      EXPECT_FALSE(std::holds_alternative<Probe>(action));
    }
  }
  void tell(size_t upstream, ProcessChange::State state, std::string why = "", Duration back_in = 2s) {
    step(ProcessChange{.upstream = upstream,
                       .state = state,
                       .models = {upstream == 0 ? "a" : "b"},
                       .as_of = now_,
                       .expected = now_ + back_in,
                       .why = std::move(why)});
  }
  void ask(RequestNumber number, const std::string& model) {
    step(Arrived{.request = number, .model = model, .key = "k", .tokens = 10});
  }
  void pass(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += 500ms) step(Tick{});
  }

  Time now_{1h};
  std::optional<Router> router_;
  std::vector<Send> sent_;
  std::map<RequestNumber, Refuse> refused_;
};

TEST_F(ToldTest, all_slots_are_there_from_the_start_and_nothing_is_probed) {
  for (RequestNumber i = 1; i <= 200; ++i) ask(i, "a");
  EXPECT_EQ(sent_.size(), 200u);
  pass(100s);
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(ToldTest, what_was_lost_waits_and_is_sent_once_more_when_it_is_back) {
  ask(1, "a");
  ask(2, "b");
  step(Failed{.request = 1, .failure = Failure::kFaulty});
  tell(0, ProcessChange::State::kAway, "it was killed");
  ask(3, "a");
  pass(5s);
  EXPECT_EQ(sent_.size(), 2u);
  EXPECT_THAT(refused_, IsEmpty());
  now_ += 1s;
  tell(0, ProcessChange::State::kThere);
  EXPECT_THAT(sent_, ElementsAre(Send{1, 0}, Send{2, 1}, Send{3, 0}, Send{1, 0}));
  step(Failed{.request = 1, .failure = Failure::kFaulty});
  EXPECT_THAT(refused_, IsEmpty()) << "the cause is not known yet";
  tell(0, ProcessChange::State::kAway, "it was killed again", 7s);
  ASSERT_TRUE(refused_.contains(1));
  EXPECT_EQ(refused_[1].status, 503);
  EXPECT_THAT(refused_[1].why, HasSubstr("it was killed again; this request was with it"));
  EXPECT_EQ(refused_[1].retry_after, Duration(7s));
}

TEST_F(ToldTest, a_connection_that_was_refused_is_no_loss) {
  ask(1, "a");
  for (int i = 0; i < 4; ++i) {
    step(Failed{.request = 1, .failure = Failure::kUnreachable});
    now_ += 1s;
    tell(0, ProcessChange::State::kThere);
  }
  EXPECT_EQ(sent_.size(), 5u);
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(ToldTest, a_sign_from_before_a_failure_opens_nothing) {
  const Time before = now_;
  now_ += 100ms;
  ask(1, "a");
  step(Failed{.request = 1, .failure = Failure::kUnreachable});
  step(ProcessChange{.upstream = 0, .state = ProcessChange::State::kThere, .models = {"a"}, .as_of = before});
  EXPECT_EQ(sent_.size(), 1u);
  now_ += 100ms;
  tell(0, ProcessChange::State::kThere);
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(ToldTest, what_waits_for_too_long_is_refused_with_the_cause) {
  tell(0, ProcessChange::State::kAway, "it is being loaded", 5s);
  ask(1, "a");
  pass(29s);
  EXPECT_THAT(refused_, IsEmpty());
  pass(2s);
  EXPECT_EQ(refused_[1].status, 503);
  EXPECT_EQ(refused_[1].why, "it is being loaded");
  EXPECT_TRUE(refused_[1].retry_after);
  tell(0, ProcessChange::State::kAway, "it is being loaded", 300s);
  ask(2, "a");
  EXPECT_EQ(refused_[2].retry_after, Duration(300s)) << "at once, where it cannot be back in time";
}

TEST_F(ToldTest, one_that_has_failed_refuses_all_with_its_cause_and_the_other_answers) {
  tell(0, ProcessChange::State::kAway, "it was killed");
  ask(1, "a");
  tell(0, ProcessChange::State::kFailed, "it has failed");
  EXPECT_EQ(refused_[1].why, "it has failed");
  ask(2, "a");
  EXPECT_EQ(refused_[2].status, 503);
  EXPECT_EQ(refused_[2].why, "it has failed");
  EXPECT_FALSE(refused_[2].retry_after);
  ask(3, "b");
  EXPECT_THAT(sent_, ElementsAre(Send{3, 1}));
  EXPECT_THAT(router_->all_models(), ElementsAre("a", "b"));
  tell(0, ProcessChange::State::kAway, "it is being loaded");
  now_ += 1s;
  tell(0, ProcessChange::State::kThere);
  ask(4, "a");
  EXPECT_THAT(sent_, ElementsAre(Send{3, 1}, Send{4, 0}));
}

TEST_F(ToldTest, a_stream_that_has_begun_is_not_sent_again) {
  ask(1, "a");
  step(Answering{.request = 1});
  step(Failed{.request = 1, .failure = Failure::kBroken, .begun = true});
  now_ += 1s;
  tell(0, ProcessChange::State::kThere);
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_EQ(router_->requests(), 0u);
}

}  // namespace
}  // namespace tandem::gateway
