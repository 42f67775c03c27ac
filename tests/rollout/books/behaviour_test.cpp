// How episodes worked, from their commits to the figures of a step.
#include <gtest/gtest.h>

#include "rollout/books/lease.h"
#include "tests/rollout/books/cluster.h"
#include "wire/socket.h"

namespace tandem::rollout {
namespace {

Commit a_commit() {
  Commit commit{.worker = "rollout-0", .key = {7, 1}, .reward = 1.0};
  commit.behaviour = Behaviour{.turns = 2, .calls = 3, .seconds = 0.5};
  return commit;
}

TEST(Behaviour, is_in_a_commit_on_the_wire_and_in_the_log) {
  wire::Outgoing message;
  auto out = message.body().initCommit();
  write_commit(a_commit(), out);
  EXPECT_EQ(read_commit("rollout-0", out.asReader()).behaviour, a_commit().behaviour);
  const auto event = event_from_json(to_json(Event(a_commit())));
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<Commit>(*event).behaviour, a_commit().behaviour);
}

TEST(Behaviour, of_a_commit_without_one_is_none) {
  Commit commit = a_commit();
  commit.behaviour.reset();
  wire::Outgoing message;
  auto out = message.body().initCommit();
  write_commit(commit, out);
  EXPECT_FALSE(read_commit("rollout-0", out.asReader()).behaviour);
  EXPECT_FALSE(to_json(Event(commit)).contains("behaviour"));
  out.setBehaviour("{\"calls\": -1}");
  EXPECT_FALSE(read_commit("rollout-0", out.asReader()).behaviour) << "an episode counts without it";
}

TEST(Behaviour, of_a_step_is_of_all_its_episodes_by_kind) {
  RunPlan plan = small_plan();
  plan.dynamic_sampling = 2;
  Cluster cluster(plan, 3, 0);
  cluster.behaviour = Behaviour{.turns = 2, .calls = 3, .parallel_calls = 1};
  Ledger other(plan, History::kOpen);
  std::map<uint64_t, std::map<std::string, BehaviourSums>> steps;
  int events = 0, compared = 0;
  cluster.watchers.push_back([&](const Event& event, const std::vector<Action>&) {
    (void)other.step(event);
    if (++events % 7 != 0) return;
    auto restored = Ledger::restore(other.snapshot());
    ASSERT_TRUE(restored) << restored.error().message();
    other = std::move(*restored);
    for (uint64_t step = 1; step <= 4; ++step) {
      const auto* full = cluster.ledger.step_groups(step);
      const auto* open = other.step_groups(step);
      if (full != nullptr && open != nullptr) {
        EXPECT_EQ(full->behaviour, open->behaviour) << "after a restart from a snapshot";
        ++compared;
      }
    }
  });
  cluster.run();
  ASSERT_TRUE(cluster.finished);
  EXPECT_GT(compared, 0);
  for (uint64_t step = 1; step <= 4; ++step) {
    ASSERT_NE(cluster.ledger.step_groups(step), nullptr);
    steps[step] = cluster.ledger.step_groups(step)->behaviour;
  }
  for (const auto& [step, by_kind] : steps) {
    const Json line = means_of(by_kind);
    EXPECT_GE(line["all"]["episodes"].get<int>(), plan.groups_per_step * plan.group_size) << line.dump();
    EXPECT_EQ(line["all"]["calls_per_turn"], 1.5);
    for (const auto& [kind, means] : line["kinds"].items())
      EXPECT_EQ(means["episodes"].get<int>() % plan.group_size, 0);
  }
}

}  // namespace
}  // namespace tandem::rollout
