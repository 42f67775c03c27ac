// Groups that a judge compares before they are trained, and rewards of single messages on their way to the trainer.
#include <gtest/gtest.h>

#include "rollout/books/learned_reward.h"
#include "tests/rollout/books/cluster.h"

namespace tandem::rollout {
namespace {

RunPlan comparing_plan() {
  RunPlan plan = small_plan();
  plan.max_attempts = 100;
  plan.compare = true;
  plan.reward.task = 0;
  plan.reward.terms = {{std::string(kPreferred), 1}};
  return plan;
}

TEST(Comparing, a_group_is_trained_when_it_was_compared_and_by_what_was_preferred) {
  Cluster cluster(comparing_plan(), 1, 0);
  std::set<uint64_t> compared;
  cluster.watchers.push_back([&](const Event& event, const std::vector<Action>& actions) {
    if (const auto* verdict = std::get_if<Compared>(&event)) compared.insert(verdict->group);
    for (const Action& action : actions) {
      const auto* batch = std::get_if<TrainBatch>(&action);
      if (batch == nullptr) continue;
      ASSERT_FALSE(batch->entries.empty());
      for (const auto& entry : batch->entries) EXPECT_TRUE(compared.contains(entry.group));
      // Three episodes with 0, 1/3, 2/3, less their mean.
      EXPECT_NEAR(batch->entries[0].advantage, -1.0 / 3, 1e-12);
      EXPECT_NEAR(batch->entries[2].advantage, 1.0 / 3, 1e-12);
    }
  });
  cluster.run();
  EXPECT_TRUE(cluster.finished);
  const auto* groups = cluster.ledger.step_groups(1);
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(groups->with_signal, 2);
  EXPECT_NEAR(groups->terms.at(std::string(kPreferred)).first, 2, 1e-12);
  EXPECT_EQ(groups->terms.at(std::string(kPreferred)).second, 6);
}

TEST(Comparing, nothing_of_a_group_without_a_verdict_is_trained) {
  Cluster cluster(comparing_plan(), 2, 0);
  cluster.failing_judge = 0.4;
  cluster.run();
  EXPECT_TRUE(cluster.finished);
  const Books books = cluster.ledger.books();
  EXPECT_GT(books.dropped.at("not_compared"), 0U);
  EXPECT_EQ(books.dropped.at("not_compared") % 3, 0U);
  EXPECT_EQ(books.trained + books.dropped.at("not_compared"), 24U);
}

TEST(Comparing, a_coordinator_that_starts_again_asks_again_and_a_second_verdict_changes_nothing) {
  Cluster cluster(comparing_plan(), 3, 0);
  cluster.send(TrainerJoined{0});
  for (const char* worker : {"w0", "w1"}) cluster.send(WorkerJoined{worker, {}});
  for (int i = 0; i < 20000 && cluster.comparisons.empty(); ++i) cluster.turn();
  ASSERT_EQ(cluster.comparisons.size(), 1U);
  const Compare first = cluster.comparisons.front();
  cluster.send(CoordinatorStarted{});
  ASSERT_EQ(cluster.comparisons.size(), 2U);
  EXPECT_EQ(cluster.comparisons.back().group, first.group);
  EXPECT_EQ(cluster.comparisons.back().candidates.size(), first.candidates.size());
  const Compared failed{.group = first.group, .preferred = {}, .failure = "gone"};
  cluster.send(failed);
  const auto dropped = cluster.ledger.books().dropped;
  cluster.send(failed);
  EXPECT_EQ(cluster.ledger.books().dropped, dropped);
  cluster.send(Compared{.group = 99'999, .preferred = {}, .failure = "unknown"});
  EXPECT_EQ(cluster.ledger.books().dropped, dropped);
  for (const char* worker : {"w0", "w1"}) cluster.send(WorkerJoined{worker, {}});
  cluster.held.clear();
  cluster.go_on();
  EXPECT_TRUE(cluster.finished);
}

TEST(Comparing, a_restored_ledger_and_one_that_reads_the_log_do_the_same) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RunPlan plan = comparing_plan();
    plan.on_lag = seed % 2 == 0 ? OnLag::kWait : OnLag::kDrop;
    plan.deterministic = seed % 5 == 0;
    plan.advantage = seed % 3 == 0 ? AdvantageKind::kReturns : AdvantageKind::kDrGrpo;
    plan.reward.turns = 0.5;
    Cluster cluster(plan, seed, 0.05);
    cluster.slow = 0.1;
    cluster.failing_judge = 0.2;
    cluster.turn_rewards = {0.25, -1};
    Ledger other(plan, History::kOpen);
    uint64_t events = 0;
    cluster.watchers.push_back([&](const Event& event, const std::vector<Action>& actions) {
      const auto read = event_from_json(*parse_json(dump_json(to_json(event))));
      ASSERT_TRUE(read.has_value());
      ASSERT_EQ(other.step(*read).size(), actions.size()) << "seed " << seed << ", event " << events;
      ASSERT_EQ(other.books(), cluster.ledger.books()) << "seed " << seed << ", event " << events;
      if (++events % 23 != 0) return;
      auto restored = Ledger::restore(other.snapshot());
      ASSERT_TRUE(restored) << restored.error().message();
      ASSERT_EQ(restored->snapshot(), other.snapshot());
      other = std::move(*restored);
    });
    cluster.run();
    ASSERT_TRUE(cluster.finished) << "seed " << seed;
  }
}

// Kinds that have advantages of their own: the others have the plan's.
TEST(AdvantagesOfKinds, are_made_by_the_rule_of_the_kind) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    RunPlan plan = small_plan();
    plan.advantage = AdvantageKind::kDrGrpo;
    plan.advantages = {{"b", {.advantage = AdvantageKind::kReturns}}};
    Cluster cluster(plan, seed, 0);
    std::map<EpisodeKey, std::string> kinds;
    std::map<uint64_t, double> sums;  // of a group
    std::set<std::string> seen;
    Ledger other(plan, History::kOpen);
    cluster.watchers.push_back([&](const Event& event, const std::vector<Action>& actions) {
      other.step(event);
      auto restored = Ledger::restore(other.snapshot());
      ASSERT_TRUE(restored) << restored.error().message();
      other = std::move(*restored);
      for (const Action& action : actions) {
        if (const auto* grant = std::get_if<Grant>(&action)) {
          for (const auto& lease : grant->leases) kinds[lease.key] = lease.kind;
        }
        const auto* batch = std::get_if<TrainBatch>(&action);
        if (batch == nullptr) continue;
        for (const auto& entry : batch->entries) {
          EXPECT_EQ(entry.kind, kinds.at(entry.key));
          seen.insert(entry.kind);
          if (entry.kind == "b")
            EXPECT_TRUE(entry.advantage == 0 || entry.advantage == 1) << entry.advantage;
          else
            sums[entry.group] += entry.advantage;
        }
        const TrainBatch* kept = other.batch(batch->step);
        ASSERT_NE(kept, nullptr);
        for (size_t i = 0; i < kept->entries.size(); ++i) EXPECT_EQ(kept->entries[i].kind, batch->entries[i].kind);
      }
    });
    cluster.run();
    EXPECT_TRUE(cluster.finished);
    EXPECT_TRUE(seen.contains("b") && seen.size() > 1) << "seed " << seed;
    for (const auto& [group, sum] : sums) EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_EQ(*plan_from_json(to_json(plan)), plan);
  }
}

// Batches carry numbers of their episodes where the plan asks for them, also after a restore; what would tell the true
// rewards stays out where rewards are shuffled.
TEST(EpisodeMetrics, go_to_a_trainer_whose_functions_may_take_them) {
  for (const bool shuffled : {false, true}) {
    RunPlan plan = small_plan();
    plan.episode_metrics = true;
    plan.shuffle_rewards = shuffled;
    Cluster cluster(plan, 4, 0);
    cluster.terms = {{"tests", 0.5}};
    Ledger other(plan, History::kOpen);
    size_t seen = 0;
    cluster.watchers.push_back([&](const Event& event, const std::vector<Action>& actions) {
      other.step(event);
      auto restored = Ledger::restore(other.snapshot());
      ASSERT_TRUE(restored) << restored.error().message();
      other = std::move(*restored);
      for (const Action& action : actions) {
        const auto* batch = std::get_if<TrainBatch>(&action);
        if (batch == nullptr) continue;
        const TrainBatch* kept = other.batch(batch->step);
        ASSERT_NE(kept, nullptr);
        for (size_t i = 0; i < batch->entries.size(); ++i) {
          const auto& metrics = batch->entries[i].metrics;
          EXPECT_EQ(kept->entries[i].metrics, metrics);
          EXPECT_EQ(metrics.count("terms.tests"), shuffled ? 0U : 1U);
          EXPECT_EQ(metrics.size(), shuffled ? 6U : 7U);
          EXPECT_GT(metrics.at("sampled_tokens"), 0);
          ++seen;
        }
      }
    });
    cluster.run();
    EXPECT_TRUE(cluster.finished);
    EXPECT_GT(seen, 0U);
    EXPECT_EQ(*plan_from_json(to_json(plan)), plan);
  }
}

TEST(TurnRewards, go_to_a_trainer_that_makes_advantages_of_tokens_and_count_in_the_sum_elsewhere) {
  for (const auto advantage : {AdvantageKind::kReturns, AdvantageKind::kDrGrpo}) {
    RunPlan plan = small_plan();
    plan.advantage = advantage;
    plan.reward.turns = 2;
    Cluster cluster(plan, 4, 0);
    cluster.turn_rewards = {0.25, -1};
    cluster.watchers.push_back([&](const Event&, const std::vector<Action>& actions) {
      for (const Action& action : actions) {
        const auto* batch = std::get_if<TrainBatch>(&action);
        if (batch == nullptr) continue;
        for (const auto& entry : batch->entries) {
          if (advantage == AdvantageKind::kReturns) {
            EXPECT_EQ(entry.turn_rewards, (std::vector<double>{0.5, -2}));
            EXPECT_TRUE(entry.advantage == -1.5 || entry.advantage == -0.5) << entry.advantage;
          } else {
            EXPECT_TRUE(entry.turn_rewards.empty());
          }
        }
      }
    });
    cluster.run();
    EXPECT_TRUE(cluster.finished);
  }
  Commit commit;
  commit.reward = 1;
  commit.turn_rewards = {0.25, -1};
  EXPECT_EQ(learned_reward(commit, {}), 1);
  EXPECT_EQ(learned_reward(commit, {.turns = 2}), -0.5);
}

}  // namespace
}  // namespace tandem::rollout
