// Groups that teach nothing, and what is drawn in their place; episodes that were cut short.
#include <gtest/gtest.h>

#include <set>

#include "tests/rollout/books/cluster.h"

namespace tandem::rollout {
namespace {

RunPlan refilling(int most) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.dynamic_sampling = most;
  return plan;
}

TEST(DynamicSampling, every_batch_has_as_many_groups_with_a_signal_as_a_step_wants) {
  EXPECT_EQ(*plan_from_json(to_json(refilling(3))), refilling(3));
  for (const bool deterministic : {false, true}) {
    RunPlan plan = refilling(100);
    plan.deterministic = deterministic;
    plan.steps = 10;
    Cluster cluster(plan, 1, 0);
    cluster.run();
    ASSERT_TRUE(cluster.finished);
    ASSERT_EQ(cluster.trained.size(), 10u);
    int groups = 0;
    for (const auto& [step, entries] : cluster.trained) {
      std::set<uint64_t> with_signal;
      for (const auto& entry : entries) with_signal.insert(entry.group);
      EXPECT_EQ(with_signal.size(), static_cast<size_t>(plan.groups_per_step)) << step;
      EXPECT_EQ(entries.size(), static_cast<size_t>(plan.groups_per_step * plan.group_size)) << step;
      const auto* of_step = cluster.ledger.step_groups(step);
      EXPECT_EQ(of_step->with_signal, plan.groups_per_step);
      groups += of_step->groups;
    }
    const Books books = cluster.ledger.books();
    EXPECT_GT(books.dropped.at("no_signal"), 0u);
    EXPECT_EQ(static_cast<uint64_t>(groups - 10 * plan.groups_per_step) * plan.group_size,
              books.dropped.at("no_signal"))
        << "success is of all groups that were sampled";
  }
}

// Tasks that are all solved would be drawn without end.
TEST(DynamicSampling, ends_at_its_bound_with_what_there_is) {
  for (const int most : {0, 1, 3}) {
    const RunPlan plan = refilling(most);
    Ledger ledger(plan);
    ledger.step(TrainerJoined{0});
    ledger.step(WorkerJoined{"w", {}});
    std::vector<TrainBatch> batches;
    for (int round = 0; round < 100 && batches.empty(); ++round) {
      for (const Action& action : ledger.step(Pull{"w", 1})) {
        const auto* grant = std::get_if<Grant>(&action);
        if (grant == nullptr) continue;
        for (const auto& lease : grant->leases) {
          for (const Action& next : ledger.step(Commit{.worker = "w", .key = lease.key, .reward = 1.0})) {
            if (const auto* batch = std::get_if<TrainBatch>(&next)) batches.push_back(*batch);
          }
        }
      }
    }
    ASSERT_EQ(batches.size(), 1u) << most;
    EXPECT_TRUE(batches[0].entries.empty());
    EXPECT_EQ(ledger.step_groups(1)->groups, (most + 1) * plan.groups_per_step);
    EXPECT_EQ(ledger.step_groups(1)->success, 1);
  }
}

TEST(DynamicSampling, does_not_depend_on_the_order_in_which_workers_finish) {
  RunPlan plan = refilling(5);
  plan.deterministic = true;
  plan.steps = 8;
  Cluster one(plan, 10, 0), two(plan, 20, 0);
  one.run();
  two.run();
  ASSERT_EQ(one.trained.size(), 8u);
  for (const auto& [step, entries] : one.trained) {
    ASSERT_EQ(entries.size(), two.trained.at(step).size()) << step;
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].key.episode, two.trained.at(step)[i].key.episode);
      EXPECT_EQ(entries[i].advantage, two.trained.at(step)[i].advantage);
    }
  }
}

TEST(DynamicSampling, under_random_faults_nothing_is_lost_and_a_snapshot_goes_on_alike) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RunPlan plan = refilling(2);
    plan.deterministic = seed % 3 == 0;
    plan.max_attempts = 100;
    Cluster cluster(plan, seed, 0.08);
    cluster.run();
    ASSERT_TRUE(cluster.finished) << "seed " << seed;
    EXPECT_EQ(cluster.ledger.books().in_flight, 0u) << "seed " << seed;
    Ledger whole(plan);
    std::optional<Ledger> restored;
    for (size_t i = 0; i < cluster.log.size(); ++i) {
      const Event event = *event_from_json(*parse_json(cluster.log[i]));
      if (i % 11 == seed % 11) {
        auto again = Ledger::restore((restored ? *restored : whole).snapshot());
        ASSERT_TRUE(again) << again.error().to_string();
        restored.emplace(std::move(*again));
      }
      whole.step(event);
      if (restored) restored->step(event);
    }
    EXPECT_EQ(restored->books(), whole.books()) << "seed " << seed;
    for (uint64_t step = 1; step <= 4; ++step) {
      EXPECT_EQ(restored->step_groups(step)->groups, whole.step_groups(step)->groups) << "seed " << seed;
      EXPECT_EQ(restored->step_groups(step)->success, whole.step_groups(step)->success) << "seed " << seed;
    }
  }
}

TEST(LeaveOutTruncated, they_count_in_the_baseline_and_are_not_trained) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.leave_out_truncated = true;
  EXPECT_EQ(*plan_from_json(to_json(plan)), plan);
  Ledger ledger(plan);
  ledger.step(TrainerJoined{0});
  ledger.step(WorkerJoined{"w", {}});
  std::optional<TrainBatch> batch;
  for (int round = 0; round < 100 && !batch; ++round) {
    for (const Action& action : ledger.step(Pull{"w", 1})) {
      const auto* grant = std::get_if<Grant>(&action);
      if (grant == nullptr) continue;
      for (const auto& lease : grant->leases) {
        const bool first = lease.key.episode % 3 == 0;
        const Commit commit{.worker = "w",
                            .key = lease.key,
                            .outcome = first ? Outcome::kTruncated : Outcome::kCompleted,
                            .reward = lease.key.episode % 3 == 1 ? 1.0 : 0.0};
        for (const Action& next : ledger.step(commit)) {
          if (const auto* formed = std::get_if<TrainBatch>(&next)) batch = *formed;
        }
      }
    }
  }
  ASSERT_TRUE(batch);
  ASSERT_EQ(batch->entries.size(), 4u);
  for (const auto& entry : batch->entries) {
    EXPECT_NE(entry.key.episode % 3, 0u);
    EXPECT_NEAR(entry.advantage, entry.key.episode % 3 == 1 ? 2.0 / 3 : -1.0 / 3, 1e-12);
  }
  EXPECT_EQ(ledger.books().dropped.at("truncated"), 2u);
}

}  // namespace
}  // namespace tandem::rollout
