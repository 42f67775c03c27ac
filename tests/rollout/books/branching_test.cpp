// Which episodes of a group begin as one, and how the ledger gives them out.
#include "rollout/books/branching.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "rollout/books/lease.h"
#include "tests/rollout/books/cluster.h"
#include "wire/socket.h"

namespace tandem::rollout {
namespace {

RunPlan branching_plan() {
  RunPlan plan = small_plan();
  plan.group_size = 5;
  plan.heldout_tasks = 0;
  plan.branch = {.ways = 3, .first_turn = 2, .last_turn = 4};
  return plan;
}

TEST(Branching, families_are_neighbours_and_share_seed_and_turn) {
  const RunPlan plan = branching_plan();
  const auto first = trunk_of(plan, 20, 8, 20);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->family, 20u);
  EXPECT_EQ(trunk_of(plan, 20, 8, 22), first);
  const auto next = trunk_of(plan, 20, 8, 23);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->family, 23u);
  EXPECT_NE(next->seed, first->seed);
  EXPECT_EQ(trunk_of(plan, 20, 8, 27)->family, 26u);    // the last family is smaller
  EXPECT_FALSE(trunk_of(plan, 20, 7, 26).has_value());  // and one alone is none
}

TEST(Branching, turns_are_drawn_from_the_whole_range) {
  const RunPlan plan = branching_plan();
  std::set<uint32_t> turns;
  for (uint64_t group = 0; group < 60; ++group) turns.insert(trunk_of(plan, group * 6, 6, group * 6)->turn);
  EXPECT_EQ(turns, (std::set<uint32_t>{2, 3, 4}));
}

TEST(Branching, a_plan_without_it_has_no_trunks) {
  EXPECT_FALSE(trunk_of(small_plan(), 0, 8, 3).has_value());
  EXPECT_EQ(*plan_from_json(to_json(branching_plan())), branching_plan());
  RunPlan wrong = branching_plan();
  wrong.branch.last_turn = 1;
  EXPECT_FALSE(check(wrong).ok());
}

TEST(Branching, a_family_is_granted_as_a_whole_where_there_is_room_for_one_of_it) {
  Ledger ledger(branching_plan());
  (void)ledger.step(TrainerJoined{0});
  (void)ledger.step(WorkerJoined{"w0", {}});
  const auto actions = ledger.step(Pull{"w0", 1});
  std::vector<LeaseTerms> leases;
  for (const Action& action : actions) {
    if (const auto* grant = std::get_if<Grant>(&action)) leases = grant->leases;
  }
  ASSERT_EQ(leases.size(), 3u);
  for (const LeaseTerms& lease : leases) EXPECT_EQ(lease.trunk, leases[0].trunk);
  EXPECT_EQ(leases[0].trunk->seed, leases[0].sample_seed);
  EXPECT_NE(leases[1].trunk->seed, leases[1].sample_seed);
}

TEST(Branching, a_run_of_families_loses_no_episode_whatever_fails) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Cluster cluster(branching_plan(), seed, seed % 2 == 0 ? 0 : 0.05);
    cluster.room = 4;
    cluster.run();
    EXPECT_TRUE(cluster.finished) << seed;
  }
}

TEST(Branching, what_episodes_had_of_each_other_is_counted_by_step_and_kept) {
  RunPlan plan = branching_plan();
  plan.steps = 1;
  plan.groups_per_step = 1;
  plan.max_lag = 0;
  Ledger ledger(plan, History::kOpen);
  (void)ledger.step(TrainerJoined{0});
  (void)ledger.step(WorkerJoined{"w0", {}});
  (void)ledger.step(Pull{"w0", 8});
  for (uint64_t episode = 0; episode < 5; ++episode) {
    Commit commit{.worker = "w0", .key = {episode, 1}};
    commit.reward = episode % 2;
    commit.sampled_tokens = 10;
    commit.tool_calls = 2;
    if (episode < 3) commit.branch_turn = 2, commit.branch_family = 0;
    if (episode == 1 || episode == 2) commit.inherited_tokens = 4, commit.inherited_calls = 1;
    const auto read = event_from_json(to_json(Event(commit)));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(std::get<Commit>(*read).inherited_tokens, commit.inherited_tokens);
    (void)ledger.step(*read);
  }
  const auto check = [](const Ledger& of) {
    const auto* groups = of.step_groups(1);
    ASSERT_NE(groups, nullptr);
    EXPECT_EQ(groups->branches.trunks, 1);
    EXPECT_EQ(groups->branches.episodes, 3);
    EXPECT_EQ(groups->branches.inherited_tokens, 8u);
    EXPECT_EQ(groups->branches.inherited_calls, 2u);
    EXPECT_EQ(groups->sampled_tokens, 50u);
    EXPECT_EQ(groups->calls, 10u);
  };
  check(ledger);
  const auto restored = Ledger::restore(ledger.snapshot());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  check(*restored);
}

TEST(Branching, leases_and_commits_say_it_on_the_wire) {
  const LeaseTerms lease{.key = {7, 1}, .trunk = TrunkTerms{.family = 6, .seed = 99, .turn = 2}};
  wire::Outgoing message;
  write_lease(lease, message.body().initGrant().initLeases(1)[0]);
  EXPECT_EQ(read_lease(message.body().getGrant().getLeases()[0].asReader()).trunk, lease.trunk);
  Commit commit{.key = {7, 1}};
  commit.branch_turn = 2;
  commit.inherited_tokens = 5;
  commit.inherited_calls = 3;
  wire::Outgoing other;
  write_commit(commit, other.body().initCommit());
  const Commit read = read_commit("w0", other.body().getCommit().asReader());
  EXPECT_EQ(read.branch_turn, 2u);
  EXPECT_EQ(read.inherited_tokens, 5u);
  EXPECT_EQ(read.inherited_calls, 3u);
}

}  // namespace
}  // namespace tandem::rollout
