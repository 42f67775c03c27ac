#include "envs/fleet/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "envs/fleet/operator_requests.h"

namespace tandem::envs {
namespace {

using namespace std::chrono_literals;

Moment at(double seconds) { return {Time{} + from_seconds(seconds), 1000 + seconds}; }

SandboxHolder holder(uint64_t episode) {
  return {.lease = 100 + episode, .episode = episode, .attempt = 1, .task = "set/train"};
}

SandboxSpec spec_of(const SandboxHolder& who) {
  SandboxSpec spec;
  spec.holder = who;
  return spec;
}

TEST(Fleet, a_sandbox_is_warm_then_leased_then_calling_and_at_last_no_more) {
  Fleet fleet(7, at(0));
  const auto number = fleet.made({}, 2ms, at(1));
  const auto row = [&](double now) { return fleet.rows(0, 10, at(now).now).at(0); };
  EXPECT_EQ(row(3).state, SandboxState::kWarm);
  EXPECT_DOUBLE_EQ(row(3).age_seconds, 2);
  EXPECT_TRUE(is_sandbox_id(row(3).id)) << row(3).id;

  fleet.leased(number, holder(4), at(4));
  EXPECT_EQ(row(5).state, SandboxState::kLeased);
  EXPECT_EQ(row(5).holder, holder(4));
  EXPECT_DOUBLE_EQ(row(5).state_seconds, 1);

  fleet.call_began(number, "grep", at(6));
  fleet.call_began(number, "read_file", at(6));
  EXPECT_EQ(row(7).state, SandboxState::kCalling);
  EXPECT_EQ(row(7).doing, "read_file");
  fleet.call_ended(number, {.tool = "grep", .took = 1s, .exit_code = 0, .ended_by = {}}, at(7));
  EXPECT_EQ(row(7).state, SandboxState::kCalling) << "one of two is done";
  fleet.call_ended(number, {.tool = "read_file", .took = 1s, .exit_code = 0, .ended_by = {}}, at(8));
  EXPECT_EQ(row(8).state, SandboxState::kLeased);
  EXPECT_EQ(row(8).calls, 2u);
  EXPECT_EQ(row(8).doing, "");

  fleet.ended(number, at(9));
  EXPECT_EQ(fleet.size(), 0u);
  std::vector<FleetEventKind> kinds;
  for (const auto& event : fleet.events(0, "", 100).events) kinds.push_back(event.kind);
  EXPECT_THAT(kinds, testing::ElementsAre(FleetEventKind::kMade, FleetEventKind::kLeased, FleetEventKind::kCall,
                                          FleetEventKind::kCall, FleetEventKind::kEnded));
  EXPECT_EQ(fleet.events(0, "", 100).events.back().what, "released");
}

TEST(Fleet, one_that_is_made_for_an_episode_or_its_tests_is_never_warm) {
  Fleet fleet(7, at(0));
  auto grader = holder(1);
  grader.grading = true;
  fleet.made(spec_of(holder(1)), 2ms, at(1));
  fleet.made(spec_of(grader), 2ms, at(1));
  const auto warm = fleet.made({}, 2ms, at(1));
  fleet.leased(warm, holder(2), at(2));
  fleet.leased(warm, holder(3), at(2));  // it has a holder
  const auto rows = fleet.rows(0, 10, at(2).now);
  EXPECT_EQ(rows[0].state, SandboxState::kLeased);
  EXPECT_EQ(rows[1].state, SandboxState::kGrading);
  EXPECT_EQ(rows[2].holder, holder(2));
  const auto figures = fleet.figures(at(2).now);
  EXPECT_EQ(figures.made_on_demand, 2u);
  EXPECT_EQ(figures.taken_warm, 1u);
}

TEST(Fleet, an_end_is_counted_under_its_first_reason) {
  Fleet fleet(7, at(0));
  const auto killed = fleet.made(spec_of(holder(1)), 2ms, at(1));
  fleet.ending(killed, EndReason::kOperator, at(2));
  fleet.ending(killed, EndReason::kLost, at(2));  // the call in it fails
  EXPECT_EQ(fleet.rows(0, 1, at(2).now)[0].state, SandboxState::kDraining);
  fleet.ended(killed, at(3));
  const auto idle = fleet.made(spec_of(holder(2)), 2ms, at(3));
  fleet.lease_ending(102, EndReason::kIdle);
  fleet.ended(idle, at(4));
  fleet.ended(fleet.made({}, 2ms, at(4)), at(5));
  fleet.ended(99, at(5));  // there is none
  const auto late = fleet.made(spec_of(holder(3)), 2ms, at(5));
  fleet.call_began(late, "bash", at(5));
  fleet.call_ended(late, {.tool = "bash", .took = 9s, .exit_code = 124, .ended_by = EndReason::kTimeLimit}, at(14));
  const auto ended = fleet.figures(at(20).now).ended;
  EXPECT_EQ(
      ended,
      (std::map<EndReason, uint64_t>{
          {EndReason::kOperator, 1}, {EndReason::kIdle, 1}, {EndReason::kUnwanted, 1}, {EndReason::kTimeLimit, 1}}));
  EXPECT_EQ(fleet.events(0, "", 100).events.back().what, "bash, ended: time_limit");
}

TEST(Fleet, a_wrong_name_is_answered_with_the_nearest_and_that_of_one_that_ended_with_how) {
  Fleet fleet(7, at(0));
  EXPECT_THAT(fleet.find("abcd-1", at(0).now).error().message(), testing::HasSubstr("there are none now"));
  const auto first = fleet.made({}, 2ms, at(1));
  const auto id = fleet.rows(0, 1, at(1).now)[0].id;
  auto wrong = id;
  std::swap(wrong[0], wrong[1]);
  EXPECT_THAT(fleet.find(wrong, at(1).now).error().message(), testing::HasSubstr("did you mean \"" + id + "\"?"));
  EXPECT_THAT(fleet.find("something-else-entirely", at(1).now).error().message(), testing::HasSubstr("envs ls"));
  EXPECT_EQ(fleet.find(id, at(1).now)->number, first);
  fleet.ended(first, at(2));
  EXPECT_EQ(fleet.find(id, at(2).now).error().message(), "sandbox " + id + " has ended (unwanted)");
  EXPECT_TRUE(fleet.check_known(id, at(2).now)) << "its events are kept";
}

TEST(Fleet, names_of_one_life_are_none_of_another) {
  std::set<std::string> names;
  for (uint64_t life = 1'700'000'000'000'000; life < 1'700'000'000'001'000; ++life) {
    Fleet fleet(life, at(0));
    fleet.made({}, 1ms, at(0));
    names.insert(fleet.rows(0, 1, at(0).now)[0].id);
  }
  EXPECT_GT(names.size(), 990u);
}

TEST(Fleet, the_last_events_are_kept_and_the_loss_of_others_is_said) {
  Fleet fleet(7, at(0));
  const auto one = fleet.made({}, 2ms, at(0)), other = fleet.made({}, 2ms, at(0));
  const auto rows = fleet.rows(0, 2, at(0).now);
  for (size_t i = 0; i < Fleet::kMostEvents; ++i)
    fleet.executed(i % 2 == 0 ? one : other, std::to_string(i), 1ms, 0, at(1));
  const auto all = fleet.events(0, "", 1'000'000);
  EXPECT_EQ(all.events.size(), Fleet::kMostEvents);
  EXPECT_EQ(all.lost, 2u);
  EXPECT_EQ(all.seen, Fleet::kMostEvents + 2);
  EXPECT_EQ(fleet.events(all.seen, "", 10).events.size(), 0u);
  EXPECT_EQ(fleet.events(all.seen + 1000, "", 10).events.size(), 0u) << "of a later life than this";

  const auto page = fleet.events(0, rows[1].id, 3);
  ASSERT_EQ(page.events.size(), 3u);
  EXPECT_EQ(page.events[0].what, "1");
  EXPECT_EQ(fleet.events(page.seen, rows[1].id, 1).events.at(0).what, "7");

  const auto last = fleet.events(fleet.before_last(2, rows[0].id), rows[0].id, 2);
  ASSERT_EQ(last.events.size(), 2u);
  EXPECT_EQ(last.events[1].what, std::to_string(Fleet::kMostEvents - 2));
  EXPECT_EQ(fleet.before_last(0, ""), all.seen);
  EXPECT_EQ(fleet.before_last(1'000'000, ""), 2u);
}

TEST(Fleet, words_of_others_are_bounded_and_printable) {
  Fleet fleet(7, at(0));
  auto who = holder(1);
  who.task = "a\x1b[31mb\n" + std::string(5000, 'x');
  const auto number = fleet.made(spec_of(who), 2ms, at(0));
  fleet.executed(number, std::string(5000, 'y') + "\n\x01", 1ms, 0, at(1));
  for (const auto& event : fleet.events(0, "", 10).events) {
    EXPECT_LE(event.what.size(), Fleet::kLongestWords + 8);
    EXPECT_LE(event.holder.task.size(), Fleet::kLongestWords + 8);
    EXPECT_EQ((event.what + event.holder.task).find_first_of("\n\x1b\x01"), std::string::npos);
  }
}

TEST(Fleet, figures_say_how_fast_sandboxes_are_made) {
  Fleet fleet(7, at(0));
  EXPECT_EQ(fleet.figures(at(1).now).spawn_p99_ms, 0);
  for (int i = 0; i < 200; ++i) fleet.made({}, std::chrono::milliseconds(i), at(100 + i * 0.1));
  const auto figures = fleet.figures(at(120).now);
  EXPECT_EQ(figures.made, 200u);
  EXPECT_EQ(figures.warm, 200u);
  EXPECT_NEAR(figures.spawns_per_second, 10, 0.2);
  EXPECT_EQ(figures.spawn_p50_ms, 100);
  EXPECT_EQ(figures.spawn_p99_ms, 198);
  EXPECT_EQ(fleet.figures(at(200).now).spawns_per_second, 0);
  // More than are kept within the time: the rate is of those that are.
  for (int i = 0; i < 5000; ++i) fleet.made({}, 1ms, at(300 + i * 0.001));
  EXPECT_NEAR(fleet.figures(at(305).now).spawns_per_second, 1000, 30);
}

TEST(Fleet, whatever_comes_the_books_are_kept) {
  Random random(11);
  Fleet fleet(7, at(0));
  uint64_t made = 0, ended = 0, last = 0;
  std::set<uint64_t> living;
  double now = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += 0.001;
    const uint64_t some = random.below(made + 3);
    switch (random.below(8)) {
      case 0:
        living.insert(fleet.made(random.chance(0.5) ? SandboxSpec{} : spec_of(holder(some)), 1ms, at(now)));
        ++made;
        break;
      case 1:
        fleet.ended(some, at(now));
        ended += living.erase(some);
        break;
      case 2:
        fleet.leased(some, holder(some), at(now));
        break;
      case 3:
        fleet.call_began(some, "bash", at(now));
        break;
      case 4:
        fleet.call_ended(some, {.tool = "bash", .took = 1ms, .exit_code = 0, .ended_by = {}}, at(now));
        break;
      case 5:
        fleet.ending(some, EndReason::kLost, at(now));
        break;
      case 6:
        fleet.lease_ending(100 + some, EndReason::kIdle);
        break;
      default:
        fleet.executed(some, "ls", 1ms, 0, at(now));
    }
    const auto figures = fleet.figures(at(now).now);
    ASSERT_EQ(fleet.size(), made - ended);
    ASSERT_EQ(figures.warm + figures.leased + figures.calling + figures.grading + figures.draining, fleet.size());
    const auto events = fleet.events(last, "", 100).events;
    for (const auto& event : events) ASSERT_EQ(event.number, ++last);
  }
  EXPECT_EQ(fleet.figures(at(now).now).made, made);
}

TEST(QuestionBudget, a_burst_is_taken_and_then_a_rate) {
  QuestionBudget budget;
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += budget.take(at(1).now);
  EXPECT_EQ(taken, static_cast<int>(QuestionBudget::kAtOnce));
  taken = 0;
  for (int i = 0; i < 1000; ++i) taken += budget.take(at(1 + i * 0.01).now);
  EXPECT_NEAR(taken, 10 * QuestionBudget::kPerSecond, 2);
}

}  // namespace
}  // namespace tandem::envs
