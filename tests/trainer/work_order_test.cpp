// The order of work against a coordinator whose messages are lost, doubled and late.
#include "trainer/work_order.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "base/random.h"

namespace tandem::trainer {
namespace {

using namespace std::chrono_literals;

WorkOrder::Ordered batch(uint64_t step) { return {{.step = step, .entries = {{.key = {step, 1}}}}}; }

template <typename T>
std::vector<T> of(const std::vector<WorkOrder::Action>& actions) {
  std::vector<T> found;
  for (const auto& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

TEST(WorkOrder, trains_in_order_one_at_a_time_and_ignores_what_is_done_or_beyond_the_plan) {
  WorkOrder order({.steps = 3, .checkpoint_every = 2}, 0, Time{});
  EXPECT_TRUE(order.step(batch(2), Time{}).empty()) << "1 is missing";
  EXPECT_EQ(of<WorkOrder::Train>(order.step(batch(1), Time{})).at(0).batch.step, 1u);
  EXPECT_TRUE(order.step(batch(1), Time{}).empty()) << "it is being trained";
  EXPECT_TRUE(order.step(batch(4), Time{}).empty());
  const auto after = order.step(WorkOrder::Trained{"one"}, Time{});
  EXPECT_EQ(of<WorkOrder::ReportStep>(after).at(0).report, "one");
  EXPECT_EQ(of<WorkOrder::AnnounceWeights>(after).size(), 1u);
  EXPECT_EQ(of<WorkOrder::Train>(after).at(0).batch.step, 2u);
  EXPECT_TRUE(order.step(batch(1), Time{}).empty());
  EXPECT_EQ(order.waiting(), 1u);
  const auto saved = order.step(WorkOrder::Trained{"two"}, Time{});
  EXPECT_EQ(of<WorkOrder::Save>(saved).at(0).version, 2u);
  EXPECT_TRUE(of<WorkOrder::Train>(saved).empty());
  EXPECT_TRUE(order.step(batch(3), Time{}).empty()) << "the checkpoint is being written";
  const auto third = order.step(WorkOrder::Saved{}, Time{});
  EXPECT_EQ(of<WorkOrder::ReportCheckpoint>(third).at(0).version, 2u);
  EXPECT_EQ(of<WorkOrder::Train>(third).at(0).batch.step, 3u);
  EXPECT_EQ(of<WorkOrder::Save>(order.step(WorkOrder::Trained{"three"}, Time{})).size(), 1u) << "the last step";
}

TEST(WorkOrder, a_step_that_is_given_up_is_not_counted_and_the_last_one_is_saved) {
  WorkOrder order({.steps = 5, .checkpoint_every = 100}, 0, Time{});
  order.step(batch(1), Time{});
  order.step(WorkOrder::Trained{"one"}, Time{});
  ASSERT_EQ(of<WorkOrder::Train>(order.step(batch(2), Time{})).size(), 1u);
  EXPECT_TRUE(order.step(WorkOrder::Leave{}, Time{}).empty()) << "a step is under way";
  const auto given_up = order.step(WorkOrder::GivenUp{}, Time{});
  EXPECT_EQ(of<WorkOrder::Save>(given_up).at(0).version, 1u);
  EXPECT_TRUE(of<WorkOrder::ReportStep>(given_up).empty());
  EXPECT_EQ(order.waiting(), 1u);
  EXPECT_EQ(of<WorkOrder::Quit>(order.step(WorkOrder::Saved{}, Time{})).size(), 1u);
}

TEST(WorkOrder, tells_a_new_coordinator_all_again_and_waits_for_its_orders) {
  WorkOrder order({.steps = 30, .checkpoint_every = 100}, 0, Time{});
  for (uint64_t step = 1; step <= 10; ++step) {
    order.step(batch(step), Time{});
    order.step(WorkOrder::Trained{std::to_string(step)}, Time{});
  }
  order.step(batch(12), Time{});
  const auto actions = order.step(WorkOrder::Introduced{}, Time{});
  const auto reports = of<WorkOrder::ReportStep>(actions);
  ASSERT_EQ(reports.size(), 8u) << "of the newest";
  EXPECT_EQ(reports.front().step, 3u);
  EXPECT_EQ(reports.back().report, "10");
  EXPECT_EQ(of<WorkOrder::ReportCheckpoint>(actions).at(0).version, 0u);
  EXPECT_EQ(order.waiting(), 0u) << "what the one before ordered is not known to this one";
}

TEST(WorkOrder, finishes_with_a_checkpoint_says_so_whenever_asked_and_stops_on_a_word) {
  WorkOrder order({.steps = 30, .checkpoint_every = 100}, 0, Time{});
  order.step(WorkOrder::Turn{.coordinator_known = true}, Time{});
  order.step(batch(1), Time{});
  EXPECT_TRUE(order.step(WorkOrder::Finish{}, Time{}).empty()) << "a step is under way";
  const auto saving = order.step(WorkOrder::Trained{""}, Time{});
  EXPECT_EQ(of<WorkOrder::Save>(saving).at(0).version, 1u);
  EXPECT_EQ(of<WorkOrder::ReportCheckpoint>(order.step(WorkOrder::Saved{}, Time{})).size(), 1u);
  EXPECT_TRUE(order.step(WorkOrder::Turn{.coordinator_known = true}, Time{}).empty()) << "said once";
  EXPECT_EQ(of<WorkOrder::ReportCheckpoint>(order.step(WorkOrder::Finish{}, Time{})).size(), 1u) << "asked again";
  EXPECT_TRUE(order.step(batch(2), Time{}).empty());
  EXPECT_EQ(of<WorkOrder::Quit>(order.step(WorkOrder::Stop{}, Time{})).size(), 1u);
  EXPECT_TRUE(order.step(WorkOrder::Finish{}, Time{}).empty());
}

TEST(WorkOrder, a_signal_or_the_loss_of_the_coordinator_need_no_word_to_go) {
  for (const bool by_signal : {true, false}) {
    WorkOrder order({.steps = 30}, 4, Time{});
    order.step(WorkOrder::Turn{.coordinator_known = true}, Time{});
    if (by_signal) {
      EXPECT_EQ(of<WorkOrder::Quit>(order.step(WorkOrder::Leave{}, Time{})).size(), 1u);
    } else {
      EXPECT_TRUE(of<WorkOrder::Quit>(order.step(WorkOrder::Finish{}, Time{})).empty());
      EXPECT_EQ(of<WorkOrder::Quit>(order.step(WorkOrder::Turn{}, Time{})).size(), 1u);
    }
  }
}

TEST(WorkOrder, says_what_it_does_and_counts_the_time_without_work) {
  WorkOrder order({.steps = 3}, 0, Time{});
  EXPECT_EQ(order.doing(Time{}), "waiting for batch 1");
  order.step(batch(1), Time{} + 5s);
  EXPECT_EQ(order.doing(Time{} + 7s), "training step 1 for 2.0 s");
  EXPECT_EQ(order.idle_seconds(), 5);
}

// A coordinator that orders what is not reported, restarts, and whose messages fare badly both ways; work takes a
// while.
TEST(WorkOrder, trains_each_step_once_whatever_becomes_of_messages) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    constexpr uint64_t kSteps = 20;
    WorkOrder order({.steps = kSteps, .checkpoint_every = 3}, 0, Time{});
    std::deque<WorkOrder::Event> coming;
    uint64_t trained = 0, known = 0, saved = 0, reported_save = 0;
    std::optional<WorkOrder::Event> work;
    bool quit = false;
    Time now{};
    const auto apply = [&](WorkOrder::Event event) {
      for (const auto& action : order.step(std::move(event), now)) {
        if (const auto* train = std::get_if<WorkOrder::Train>(&action)) {
          ASSERT_FALSE(work) << "two at a time";
          ASSERT_EQ(train->batch.step, trained + 1);
          ASSERT_EQ(train->batch.entries.at(0).key.episode, train->batch.step);
          work = WorkOrder::Trained{""};
        } else if (const auto* save = std::get_if<WorkOrder::Save>(&action)) {
          ASSERT_FALSE(work);
          ASSERT_EQ(save->version, trained);
          work = WorkOrder::Saved{};
        } else if (const auto* report = std::get_if<WorkOrder::ReportStep>(&action)) {
          if (random.chance(0.7)) known = std::max(known, report->step);
        } else if (const auto* checkpoint = std::get_if<WorkOrder::ReportCheckpoint>(&action)) {
          ASSERT_LE(checkpoint->version, saved);
          if (random.chance(0.7)) reported_save = std::max(reported_save, checkpoint->version);
        } else if (std::holds_alternative<WorkOrder::Quit>(action)) {
          quit = true;
        }
      }
    };
    for (int turn = 0; turn < 20000 && !quit; ++turn, now += 10ms) {
      // As the ledger does it: the next two steps of those that it knows to be trained.
      if (random.chance(0.3)) {
        for (uint64_t step = known + 1; step <= std::min(known + 2, kSteps); ++step) {
          if (random.chance(0.6)) coming.push_back(batch(step));
          if (random.chance(0.2)) coming.push_back(batch(step));
        }
      }
      if (random.chance(0.02)) apply(WorkOrder::Introduced{});
      if (known == kSteps && random.chance(0.2)) coming.push_back(WorkOrder::Finish{});
      if (reported_save == kSteps && random.chance(0.2)) coming.push_back(WorkOrder::Stop{});
      if (!coming.empty() && random.chance(0.5)) {
        const size_t which = random.chance(0.8) ? 0 : random.below(coming.size());
        WorkOrder::Event event = std::move(coming[which]);
        coming.erase(coming.begin() + which);
        apply(std::move(event));
      }
      if (work && random.chance(0.3)) {
        const bool step = std::holds_alternative<WorkOrder::Trained>(*work);
        if (step) ++trained;
        if (!step) saved = trained;
        WorkOrder::Event event = *std::exchange(work, std::nullopt);
        apply(std::move(event));
      }
      apply(WorkOrder::Turn{.coordinator_known = true});
      if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
    EXPECT_TRUE(quit) << "seed " << seed << " hangs at step " << trained;
    EXPECT_EQ(trained, kSteps);
    EXPECT_EQ(saved, kSteps);
  }
}

}  // namespace
}  // namespace tandem::trainer
