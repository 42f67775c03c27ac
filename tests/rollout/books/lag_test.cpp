// No token is trained more than max_lag versions after the one that sampled it, whatever is slow, lost or late.
#include <gtest/gtest.h>

#include "tests/rollout/books/cluster.h"

namespace tandem::rollout {
namespace {

RunPlan plan_of_seed(uint64_t seed, OnLag on_lag) {
  RunPlan plan = small_plan();
  plan.seed = seed;
  plan.steps = 12;
  plan.groups_per_step = 1 + static_cast<int>(seed % 3);
  plan.max_lag = static_cast<int>(seed % 4);
  plan.max_attempts = 1000;
  plan.on_lag = on_lag;
  return plan;
}

// The largest lag of what was trained, and whether the run came to its end.
uint64_t largest_lag(Cluster& cluster, uint64_t seed) {
  cluster.room = 2 + seed % 9;
  cluster.slow = 0.15;
  cluster.run();
  EXPECT_TRUE(cluster.finished) << "seed " << seed;
  EXPECT_EQ(cluster.ledger.books().in_flight, 0u) << "seed " << seed;
  uint64_t largest = 0;
  for (const auto& [step, entries] : cluster.trained) {
    for (const BatchEntry& entry : entries) {
      const uint64_t sampled = cluster.first_versions.at(entry.key);
      if (step - 1 > sampled) largest = std::max(largest, step - 1 - sampled);
    }
  }
  return largest;
}

TEST(Lag, is_bound_by_waiting) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RunPlan plan = plan_of_seed(seed, OnLag::kWait);
    Cluster cluster(plan, seed, seed % 2 == 0 ? 0 : 0.03);
    EXPECT_LE(largest_lag(cluster, seed), static_cast<uint64_t>(plan.max_lag)) << "seed " << seed;
    EXPECT_FALSE(cluster.ledger.books().dropped.contains("too_old")) << "seed " << seed;
  }
}

TEST(Lag, is_bound_by_dropping_what_is_too_old) {
  uint64_t dropped = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RunPlan plan = plan_of_seed(seed, OnLag::kDrop);
    Cluster cluster(plan, seed, seed % 2 == 0 ? 0 : 0.03);
    EXPECT_LE(largest_lag(cluster, seed), static_cast<uint64_t>(plan.max_lag)) << "seed " << seed;
    uint64_t by_length = 0;
    for (const auto& [bucket, count] : cluster.ledger.too_old()) by_length += count;
    const Books books = cluster.ledger.books();
    EXPECT_EQ(by_length, books.dropped.contains("too_old") ? books.dropped.at("too_old") : 0) << "seed " << seed;
    EXPECT_FALSE(cluster.ledger.waits_for_lag());
    dropped += by_length;
  }
  EXPECT_GT(dropped, 0u);
}

// Runs from before there was a bound: it shows that the others are put to the test.
TEST(Lag, is_larger_where_nothing_binds_it) {
  uint64_t largest = 0;
  for (uint64_t seed = 1; seed < 200; seed += 4) {
    Cluster cluster(plan_of_seed(seed, OnLag::kUnbound), seed, 0);
    largest = std::max(largest, largest_lag(cluster, seed));
  }
  EXPECT_GT(largest, 2u);
}

TEST(Lag, a_worker_that_samples_with_older_weights_than_its_lease_allows_holds_up_nobody) {
  RunPlan plan = plan_of_seed(5, OnLag::kWait);
  plan.heldout_tasks = 0;
  Cluster cluster(plan, 3, 0);
  cluster.lies = true;
  EXPECT_LE(largest_lag(cluster, 3), static_cast<uint64_t>(plan.max_lag));
  EXPECT_GT(cluster.ledger.books().dropped.at("too_old"), 0u);
}

}  // namespace
}  // namespace tandem::rollout
