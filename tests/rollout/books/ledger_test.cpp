#include "rollout/books/ledger.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "base/random.h"
#include "tests/rollout/books/cluster.h"

namespace tandem::rollout {
namespace {

TEST(Ledger, attempts_that_a_stop_of_the_run_cut_short_do_not_count_and_others_do) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  Cluster cluster(plan, 1, 0);
  const auto restart = [&](bool stopped) {
    if (stopped) cluster.send(FinishRequested{});
    cluster.send(TrainerJoined{0});
    cluster.send(WorkerJoined{"w0", {}});
    cluster.send(Pull{"w0", 3});
    return cluster.ledger.books().dropped_total();
  };
  restart(false);
  for (int i = 0; i < 3 * plan.max_attempts; ++i) EXPECT_EQ(restart(true), 0u) << i;
  EXPECT_EQ(cluster.ledger.held_by("w0").size(), 3u);
  // A worker that dies while the run is on has failed its episodes.
  for (int i = 1; i < plan.max_attempts; ++i) EXPECT_EQ(restart(false), 0u) << i;
  EXPECT_EQ(restart(false), 3u);
}

// It asked for more than there was in its former life, and its trainer is there first.
TEST(Ledger, a_worker_of_before_a_start_is_granted_nothing_until_it_is_back) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  Cluster cluster(plan, 1, 0);
  for (int life = 0; life < 3 * plan.max_attempts; ++life) {
    cluster.send(CoordinatorStarted{});
    cluster.held.clear();
    cluster.send(TrainerJoined{0});
    EXPECT_TRUE(cluster.held["w0"].empty()) << life;
    cluster.send(WorkerJoined{"w0", {}});
    cluster.send(Pull{"w0", 100});
    EXPECT_EQ(cluster.held["w0"].size(), 4u * 3) << life;
    EXPECT_EQ(cluster.ledger.books().dropped_total(), 0u) << life;
    cluster.send(FinishRequested{});
  }
}

TEST(Ledger, a_run_is_done_when_its_last_step_is_saved_and_not_before) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.steps = 1;
  Cluster cluster(plan, 1, 0);
  cluster.run();
  EXPECT_EQ(cluster.ledger.steps_trained(), 1u);
  EXPECT_FALSE(cluster.finished);
  cluster.send(TrainerJoined{0});  // it was killed while it saved
  ASSERT_EQ(cluster.batches.size(), 1u);
  cluster.send(Trained{1, {}});
  EXPECT_FALSE(cluster.finished);
  cluster.send(Checkpointed{1});
  EXPECT_TRUE(cluster.finished);
}

TEST(Ledger, a_run_without_faults_trains_what_has_a_signal_and_drops_the_rest_by_name) {
  Cluster cluster(small_plan(), 1, 0);
  cluster.run();
  ASSERT_TRUE(cluster.finished);
  const Books books = cluster.ledger.books();
  EXPECT_EQ(books.in_flight, 0u);
  EXPECT_GT(books.trained, 0u);
  EXPECT_EQ(books.dropped.at("heldout"), 2u * 3 * 3);  // before and after, three tasks, two samples and a greedy one
  EXPECT_EQ(cluster.ledger.steps_trained(), 4u);
}

// A teacher says of each token what is better.
TEST(Ledger, with_a_teacher_groups_of_equal_rewards_are_trained_at_an_advantage_of_0) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.all_groups = true;
  EXPECT_EQ(*plan_from_json(to_json(plan)), plan);
  EXPECT_FALSE(to_json(small_plan()).contains("all_groups")) << "plans of before are as they were";
  for (const auto kind : {AdvantageKind::kDrGrpo, AdvantageKind::kDistill}) {
    plan.advantage = kind;
    Cluster cluster(plan, 1, 0);
    int silent = 0;
    cluster.watchers.push_back([&](const Event&, const std::vector<Action>& actions) {
      for (const Action& action : actions) {
        const auto* batch = std::get_if<TrainBatch>(&action);
        if (batch == nullptr) continue;
        EXPECT_EQ(batch->entries.size(), static_cast<size_t>(plan.groups_per_step * plan.group_size));
        const auto* groups = cluster.ledger.step_groups(batch->step);
        silent += groups->groups - groups->with_signal;
        size_t zeros = 0;
        for (const auto& entry : batch->entries) zeros += entry.advantage == 0;
        EXPECT_GE(zeros, kind == AdvantageKind::kDistill
                             ? batch->entries.size()
                             : static_cast<size_t>((groups->groups - groups->with_signal) * plan.group_size));
      }
    });
    cluster.run();
    ASSERT_TRUE(cluster.finished);
    EXPECT_FALSE(cluster.ledger.books().dropped.contains("no_signal"));
    EXPECT_GT(silent, 0) << "some group has equal rewards";
  }
}

// A deterministic mode that gave the samples of a group one seed made them alike, with advantages of zero.
TEST(Ledger, the_samples_of_a_group_have_seeds_of_their_own_also_in_a_deterministic_run) {
  for (const bool deterministic : {false, true}) {
    RunPlan plan = small_plan();
    plan.deterministic = deterministic;
    plan.heldout_tasks = 0;
    Ledger ledger(plan);
    std::set<uint64_t> samples;
    std::map<uint64_t, std::set<uint64_t>> tasks;
    size_t leases = 0;
    ledger.step(WorkerJoined{.worker = "w", .holding = {}});
    for (const Action& action : ledger.step(Pull{"w", 100})) {
      const auto* grant = std::get_if<Grant>(&action);
      if (grant == nullptr) continue;
      for (const auto& lease : grant->leases) {
        ++leases;
        samples.insert(lease.sample_seed);
        tasks[lease.group].insert(lease.task_seed);
      }
    }
    EXPECT_GE(leases, 6U);
    EXPECT_EQ(samples.size(), leases);
    for (const auto& [group, seeds] : tasks) EXPECT_EQ(seeds.size(), 1U) << "a group is one task";
  }
}

TEST(Ledger, advantages_of_a_group_sum_to_zero_and_constant_groups_are_not_trained) {
  Cluster cluster(small_plan(), 2, 0);
  cluster.run();
  for (const auto& [step, entries] : cluster.trained) {
    std::map<uint64_t, double> sums;
    for (const auto& entry : entries) {
      EXPECT_NE(entry.advantage, 0);
      sums[entry.group] += entry.advantage;
    }
    for (const auto& [group, sum] : sums) EXPECT_NEAR(sum, 0, 1e-12);
  }
}

// Episodes that did equally well have advantages where one took more effort; success and curriculum do not change.
TEST(Ledger, effort_makes_a_signal_among_equal_rewards_and_leaves_success_alone) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.reward.effort = 0.1;
  Ledger ledger(plan);
  (void)ledger.step(TrainerJoined{0});
  (void)ledger.step(WorkerJoined{"w0", {}});
  std::optional<TrainBatch> batch;
  for (int round = 0; round < 10 && !batch; ++round) {
    for (const Action& action : ledger.step(Pull{"w0", 3})) {
      const auto* grant = std::get_if<Grant>(&action);
      if (!grant) continue;
      for (const auto& lease : grant->leases) {
        Commit commit{.worker = "w0", .key = lease.key};
        commit.reward = 1;
        commit.sampled_tokens = static_cast<uint32_t>(100 * lease.key.episode);
        for (const Action& after : ledger.step(commit)) {
          if (const auto* formed = std::get_if<TrainBatch>(&after); formed && !batch) batch = *formed;
        }
      }
    }
  }
  ASSERT_TRUE(batch);
  ASSERT_EQ(batch->entries.size(), 6u);
  EXPECT_EQ(ledger.step_groups(1)->with_signal, 2);
  EXPECT_EQ(ledger.step_groups(1)->success, 1);
  for (size_t i = 1; i < batch->entries.size(); ++i) {
    if (i % 3 == 0) continue;  // of another group
    EXPECT_LT(batch->entries[i].advantage, batch->entries[i - 1].advantage) << "longer";
  }
}

TEST(Ledger, under_random_faults_nothing_is_lost_or_trained_twice) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RunPlan plan = small_plan();
    plan.deterministic = seed % 3 == 0;
    plan.max_attempts = 100;
    Cluster cluster(plan, seed, 0.08);
    cluster.run();
    ASSERT_TRUE(cluster.finished) << "seed " << seed;
    EXPECT_EQ(cluster.ledger.books().in_flight, 0u) << "seed " << seed;
    std::set<uint64_t> seen;
    uint64_t count = 0;
    for (const auto& [step, entries] : cluster.trained) {
      for (const auto& entry : entries) {
        EXPECT_TRUE(seen.insert(entry.key.episode).second)
            << "episode " << entry.key.episode << " twice, seed " << seed;
        ++count;
      }
    }
    EXPECT_EQ(cluster.ledger.books().trained, count) << "seed " << seed;
  }
}

TEST(Ledger, a_replayed_log_gives_the_same_books_wherever_it_was_cut) {
  Cluster cluster(small_plan(), 3, 0.05);
  cluster.run();
  for (const size_t cut : {size_t{0}, size_t{1}, cluster.log.size() / 3, cluster.log.size() / 2, cluster.log.size()}) {
    Ledger first(small_plan()), second(small_plan());
    for (size_t i = 0; i < cut; ++i) {
      const auto event = event_from_json(*parse_json(cluster.log[i]));
      ASSERT_TRUE(event) << cluster.log[i];
      first.step(*event);
      second.step(*event);
    }
    EXPECT_EQ(first.books(), second.books());
    if (cut == cluster.log.size()) {
      EXPECT_EQ(first.books(), cluster.ledger.books());
    }
  }
}

TEST(Ledger, the_order_in_which_workers_finish_does_not_change_a_deterministic_run) {
  RunPlan plan = small_plan();
  plan.deterministic = true;
  Cluster one(plan, 10, 0), two(plan, 20, 0);
  one.run();
  two.run();
  ASSERT_EQ(one.trained.size(), 4u);
  for (const auto& [step, entries] : one.trained) {
    ASSERT_EQ(entries.size(), two.trained.at(step).size());
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].key.episode, two.trained.at(step)[i].key.episode);
      EXPECT_EQ(entries[i].advantage, two.trained.at(step)[i].advantage);
    }
  }
}

// What a deterministic run is given and trains, in every detail, as a number: it was written down once and must not
// change, whatever becomes of the ledger's inside.
TEST(Ledger, a_deterministic_run_is_the_run_that_it_was) {
  uint64_t digest = 0;
  const auto mix = [&](uint64_t value) { digest = derive_seed(digest, {value}); };
  for (const uint64_t seed : {1, 2, 3}) {
    RunPlan plan = small_plan();
    plan.deterministic = true;
    plan.max_attempts = 100;
    Cluster cluster(plan, seed, 0.08);
    cluster.run();
    for (const auto& [step, entries] : cluster.trained) {
      for (const auto& entry : entries) {
        for (const uint64_t value : {step, entry.key.episode, uint64_t{entry.key.attempt}, entry.group}) mix(value);
        mix(std::bit_cast<uint64_t>(entry.advantage));
      }
    }
    mix(cluster.log.size());
  }
  EXPECT_EQ(digest, 9520813032373980629u);
}

TEST(Ledger, an_episode_that_keeps_failing_is_dropped_for_its_reason_and_never_gets_a_reward_of_zero) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  Ledger ledger(plan);
  ledger.step(TrainerJoined{0});
  ledger.step(WorkerJoined{"w", {}});
  std::vector<LeaseTerms> leases;
  const auto take = [&](const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* grant = std::get_if<Grant>(&action))
        leases.insert(leases.end(), grant->leases.begin(), grant->leases.end());
    }
  };
  take(ledger.step(Pull{"w", 1}));
  for (int attempt = 0; attempt < plan.max_attempts; ++attempt) {
    ASSERT_EQ(leases.size(), static_cast<size_t>(attempt) + 1);
    EXPECT_EQ(leases.back().key.attempt, static_cast<uint32_t>(attempt) + 1);
    take(ledger.step(Commit{.worker = "w", .key = leases.back().key, .outcome = Outcome::kInfraError}));
    take(ledger.step(Pull{"w", attempt + 1 < plan.max_attempts ? 1u : 0u}));
  }
  EXPECT_EQ(ledger.books().dropped.at("infra_error"), 1u);
}

TEST(Ledger, an_attempt_that_another_episode_ended_does_not_count_up_to_a_bound) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  Ledger ledger(plan);
  ledger.step(TrainerJoined{0});
  ledger.step(WorkerJoined{"w", {}});
  uint32_t attempts = 0;
  while (ledger.books().dropped_total() == 0 && attempts < 1000) {
    for (const Action& action : ledger.step(Pull{"w", 1})) {
      const auto* grant = std::get_if<Grant>(&action);
      if (grant == nullptr) continue;
      EXPECT_EQ(grant->leases.at(0).key.attempt, ++attempts);
      ledger.step(Commit{.worker = "w", .key = grant->leases[0].key, .outcome = Outcome::kCancelled});
    }
  }
  EXPECT_GE(attempts, 4 * static_cast<uint32_t>(plan.max_attempts));
  EXPECT_EQ(ledger.books().dropped.at("infra_error"), 1u);
  EXPECT_EQ(ledger.episodes()[0].commit->outcome, Outcome::kInfraError);
}

TEST(Ledger, a_late_commit_of_a_lost_lease_is_refused) {
  RunPlan plan = small_plan();
  Ledger ledger(plan);
  ledger.step(WorkerJoined{"w", {}});
  ledger.step(Pull{"w", 1});
  ledger.step(WorkerLost{"w"});
  ledger.step(Commit{.worker = "w", .key = {0, 1}, .outcome = Outcome::kCompleted, .reason = "", .reward = 1.0});
  EXPECT_EQ(ledger.late_commits(), 1u);
  EXPECT_EQ(ledger.episodes()[0].state, EpisodeState::kQueued);
}

// A rollout that had offered an episode went on by itself, and another one claimed it late with what it had been
// offered first: both played the same turn.
TEST(Ledger, of_two_who_claim_one_offer_the_first_has_the_episode_and_a_void_offer_is_refused) {
  RunPlan plan = small_plan();
  Ledger ledger(plan);
  for (const char* worker : {"w0", "w1", "w2"}) ledger.step(WorkerJoined{worker, {}});
  ledger.step(Pull{"w0", 1});
  const EpisodeKey key{0, 1};
  const auto answers = [&](const std::string& worker, std::optional<uint32_t> claims) {
    std::vector<std::string> said;
    for (const Action& action : ledger.step(Claimed{key, worker, claims})) {
      if (const auto* moved = std::get_if<Transferred>(&action))
        said.push_back(fmt::format("{} to {} by {}", moved->from, moved->to, moved->claims));
      if (const auto* refused = std::get_if<ClaimRefused>(&action))
        said.push_back(fmt::format("{} not, since {}", refused->worker, refused->claims));
      if (const auto* revoked = std::get_if<Revoke>(&action)) said.push_back(revoked->worker + " revoked");
    }
    return said;
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(answers("nobody", 0), Words{}) << "it asks again when it has joined";
  EXPECT_EQ(answers("w0", 0), Words{"w0 to w0 by 1"}) << "taken back";
  EXPECT_EQ(answers("w1", 0), Words{"w1 not, since 1"});
  EXPECT_EQ(answers("w0", 0), Words{"w0 to w0 by 1"}) << "the same claim again";
  EXPECT_EQ(answers("w1", 1), Words{"w0 to w1 by 2"});
  EXPECT_EQ(answers("w0", 1), Words{"w0 not, since 2"});
  EXPECT_EQ(ledger.held_by("w1"), std::vector<EpisodeKey>{key});
  EXPECT_EQ(answers("w2", std::nullopt), Words{"w1 to w2 by 3"}) << "of a log that does not say it";
  ledger.step(Expired{key});
  EXPECT_EQ(answers("w1", 3), Words{"w1 revoked"});
}

// Three dry workers passed the last episode of a batch to and fro, and nobody played it.
TEST(Ledger, the_last_episode_is_not_passed_to_and_fro) {
  RunPlan plan = small_plan();
  plan.heldout_tasks = 0;
  plan.groups_per_step = 1;
  plan.steal_from = 1;
  plan.deterministic = true;
  Ledger ledger(plan);
  const auto steals_after = [&](const Event& event) {
    std::vector<Steal> steals;
    for (const Action& action : ledger.step(event)) {
      if (const auto* steal = std::get_if<Steal>(&action)) steals.push_back(*steal);
    }
    return steals;
  };
  (void)ledger.step(TrainerJoined{0});
  for (const char* worker : {"w0", "w1", "w2"}) EXPECT_TRUE(steals_after(WorkerJoined{worker, {}}).empty());
  std::vector<EpisodeKey> leased;
  for (const Action& action : ledger.step(Pull{"w0", 8})) {
    if (const auto* grant = std::get_if<Grant>(&action)) {
      for (const auto& lease : grant->leases) leased.push_back(lease.key);
    }
  }
  ASSERT_EQ(leased.size(), 3u);
  const auto commit_of = [&](size_t i) { return Commit{.worker = "w0", .key = leased[i], .reward = 1}; };
  EXPECT_TRUE(steals_after(commit_of(0)).empty()) << "nobody else has room yet";
  const auto first = steals_after(Pull{"w1", 8});
  ASSERT_EQ(first.size(), 1u) << "two more are worth a steal";
  EXPECT_EQ(first[0].victim, "w0");
  EXPECT_EQ(first[0].count, 1u);
  EXPECT_TRUE(steals_after(commit_of(1)).empty());
  EXPECT_TRUE(steals_after(Pull{"w2", 8}).empty()) << "the last one stays where it is";
}

TEST(Curriculum, halves_the_share_of_solved_kinds_and_lets_the_hopeless_wait) {
  Curriculum curriculum({"easy", "middling", "hopeless"}, 1);
  for (int i = 0; i < 40; ++i) {
    curriculum.observe("easy", 1);
    curriculum.observe("middling", 0.5);
    curriculum.observe("hopeless", 0);
  }
  std::map<std::string, int> counts;
  for (uint64_t batch = 0; batch < 100; ++batch) {
    for (const auto& kind : curriculum.draw(batch, 7)) ++counts[kind];
  }
  EXPECT_NEAR(counts["middling"], 400, 40);
  EXPECT_NEAR(counts["easy"], 200, 40);
  EXPECT_NEAR(counts["hopeless"], 100, 40);
}

TEST(Curriculum, draws_every_undecided_kind_once_a_batch_where_there_is_room_for_all) {
  const std::vector<std::string> kinds = {"a", "b", "c", "d", "e"};
  const Curriculum curriculum(kinds, 3);
  for (uint64_t batch = 0; batch < 50; ++batch) {
    auto drawn = curriculum.draw(batch, 5);
    std::sort(drawn.begin(), drawn.end());
    EXPECT_EQ(drawn, kinds);
  }
}

}  // namespace
}  // namespace tandem::rollout
