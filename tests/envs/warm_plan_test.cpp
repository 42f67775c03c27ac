#include "envs/sandbox/warm_plan.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::envs {
namespace {

using namespace std::chrono_literals;

// A plan whose steps are carried out at once.
class Played {
 public:
  explicit Played(const WarmBounds& bounds) : plan_(bounds) {}
  void settle() {
    for (;;) {
      const auto step = plan_.step(clock.now());
      let_go += step.let_go;
      again = step.again;
      if (step.make == 0) return;
      for (size_t i = 0; i < step.make; ++i) works ? plan_.made() : plan_.failed(clock.now());
      made += works ? step.make : 0;
      tried += step.make;
    }
  }
  void ask(size_t count) {
    for (size_t i = 0; i < count; ++i) plan_.asked(clock.now());
  }
  size_t ready() const { return plan_.ready(); }
  const WarmPlan& plan() const { return plan_; }

  ManualClock clock;
  std::optional<Time> again;
  size_t made = 0, tried = 0, let_go = 0;
  bool works = true;

 private:
  WarmPlan plan_;
};

TEST(WarmPlan, the_least_are_made_before_anybody_asks_and_no_more) {
  Played played({.least = 3});
  played.clock.advance(1min);
  played.settle();
  EXPECT_EQ(played.ready(), 3u);
  EXPECT_FALSE(played.again.has_value());
  played.ask(1);
  EXPECT_EQ(played.ready(), 2u);
  played.settle();
  EXPECT_EQ(played.ready(), 3u);
}

TEST(WarmPlan, as_many_are_kept_as_a_burst_asked_for_until_it_is_forgotten) {
  Played played({.least = 1, .most = 8, .memory = 30s});
  played.clock.advance(1min);
  played.settle();
  played.ask(5);
  played.settle();
  EXPECT_EQ(played.ready(), 5u);
  played.clock.advance(20s);
  played.ask(1);
  played.settle();
  EXPECT_EQ(played.ready(), 5u);
  ASSERT_TRUE(played.again.has_value());
  EXPECT_EQ(*played.again, played.clock.now() + 10s);
  played.clock.advance(10s);
  played.settle();
  EXPECT_EQ(played.ready(), 1u);
  EXPECT_EQ(played.let_go, 4u);
}

TEST(WarmPlan, a_burst_counts_within_its_window_alone_and_never_beyond_the_most) {
  Played played({.least = 0, .most = 4, .window = 250ms});
  played.clock.advance(1min);
  for (int i = 0; i < 20; ++i) {
    played.ask(1);
    played.clock.advance(300ms);
  }
  played.settle();
  EXPECT_EQ(played.ready(), 1u);
  played.ask(100);
  played.settle();
  EXPECT_EQ(played.ready(), 4u);
}

TEST(WarmPlan, after_a_failure_it_waits_before_it_tries_again) {
  Played played({.least = 2, .pause = 1s});
  played.works = false;
  played.clock.advance(1min);
  played.settle();
  EXPECT_EQ(played.tried, 1u);
  played.clock.advance(999ms);
  played.settle();
  EXPECT_EQ(played.tried, 1u);
  EXPECT_EQ(*played.again, played.clock.now() + 1ms);
  played.works = true;
  played.clock.advance(1ms);
  played.settle();
  EXPECT_EQ(played.ready(), 2u);
}

TEST(WarmPlan, whatever_happens_no_more_are_ready_or_being_made_than_may_be) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const WarmBounds bounds{.least = random.below(4), .most = 4 + random.below(6), .at_once = 1 + random.below(3)};
    WarmPlan plan(bounds);
    ManualClock clock;
    clock.advance(1min);
    for (int i = 0; i < 500; ++i) {
      switch (random.below(4)) {
        case 0:
          plan.asked(clock.now());
          break;
        case 1:
          if (plan.making() > 0) random.chance(0.8) ? plan.made() : plan.failed(clock.now());
          break;
        case 2:
          clock.advance(std::chrono::milliseconds(random.below(5000)));
          break;
        default: {
          const auto step = plan.step(clock.now());
          EXPECT_TRUE(step.make == 0 || step.let_go == 0);
          EXPECT_LE(plan.making(), bounds.at_once);
          EXPECT_LE(plan.ready(), plan.wanted(clock.now()));
          EXPECT_LE(plan.wanted(clock.now()), bounds.most);
        }
      }
      EXPECT_LE(plan.ready() + plan.making(), bounds.most + bounds.at_once);
    }
  }
}

}  // namespace
}  // namespace tandem::envs
