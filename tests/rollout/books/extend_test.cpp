// A run whose plan is in its log: replay needs nothing else, and more steps are an event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/rollout/books/cluster.h"

namespace tandem::rollout {
namespace {

uint64_t of_phase(const Ledger& ledger, Phase phase) {
  uint64_t count = 0;
  for (const EpisodeRecord& episode : ledger.episodes()) count += episode.phase == phase;
  return count;
}

TEST(Plan, is_written_and_read_with_every_field) {
  RunPlan plan = small_plan();
  plan.on_lag = OnLag::kDrop;
  plan.reward.effort = 0.1;
  plan.counts = {{"a", {3, 1}}, {"b", {2, 0}}, {"c", {1, 1}}};
  plan.temperature = 0.7f;
  plan.advantage = AdvantageKind::kPassAtK;
  plan.pass_k = 3;
  const auto event = event_from_json(*parse_json(dump_json(to_json(Event(PlanSet{plan})))));
  ASSERT_TRUE(event) << event.error().message();
  EXPECT_EQ(std::get<PlanSet>(*event).plan, plan);
}

TEST(Plan, that_makes_no_sense_is_refused) {
  const auto refused = [](auto change) {
    RunPlan plan = small_plan();
    change(plan);
    return !plan_from_json(to_json(plan));
  };
  EXPECT_FALSE(refused([](RunPlan&) {}));
  EXPECT_TRUE(refused([](RunPlan& p) { p.groups_per_step = 0; }));
  EXPECT_TRUE(refused([](RunPlan& p) { p.kinds.clear(); }));
  EXPECT_TRUE(refused([](RunPlan& p) { p.counts = {{"a", {1, 1}}}; })) << "b and c are not counted";
  EXPECT_TRUE(refused([](RunPlan& p) { p.steps = -1; }));
}

TEST(Plan, of_a_newer_log_is_refused_by_its_number) {
  Json json = to_json(Event(PlanSet{small_plan()}));
  json["format"] = 3;
  const auto event = event_from_json(json);
  ASSERT_FALSE(event);
  EXPECT_EQ(event.error().code(), Code::kInvalid);
  EXPECT_THAT(event.error().message(), testing::HasSubstr("format 3; this program reads formats 1 to 2"));
}

TEST(Plan, comes_first_and_once) {
  Ledger ledger;
  EXPECT_TRUE(ledger.step(WorkerJoined{"w", {}}).empty());
  EXPECT_TRUE(ledger.step(Pull{"w", 4}).empty());
  EXPECT_EQ(ledger.books(), Books{});
  (void)ledger.step(PlanSet{small_plan()});
  RunPlan other = small_plan();
  other.steps = 9;
  (void)ledger.step(PlanSet{other});
  EXPECT_EQ(ledger.plan().steps, 4);
  EXPECT_GT(ledger.books().admitted, 0u);
}

// Held-out episodes of the first evaluation became training ones when such a log was replayed with more steps.
TEST(Extension, of_a_finished_run_trains_on_and_measures_again_at_the_end) {
  RunPlan plan = small_plan();
  Cluster cluster(plan, 1, 0);
  cluster.run();
  ASSERT_TRUE(cluster.finished);
  const Books before = cluster.ledger.books();
  const uint64_t after = of_phase(cluster.ledger, Phase::kAfter);
  cluster.finished = false;
  cluster.send(Extended{8});
  EXPECT_FALSE(cluster.ledger.finished());
  EXPECT_EQ(cluster.ledger.phase(), Phase::kTrain);
  cluster.send(TrainerJoined{4});
  cluster.go_on();
  ASSERT_TRUE(cluster.finished);
  const Books books = cluster.ledger.books();
  EXPECT_EQ(cluster.ledger.steps_trained(), 8u);
  EXPECT_EQ(books.in_flight, 0u);
  EXPECT_GT(books.trained, before.trained);
  EXPECT_EQ(of_phase(cluster.ledger, Phase::kAfter), after);
  EXPECT_EQ(of_phase(cluster.ledger, Phase::kBetween), after);
  for (const EpisodeRecord& episode : cluster.ledger.episodes()) {
    if (episode.phase == Phase::kTrain) continue;
    EXPECT_EQ(episode.dropped, "heldout") << episode.episode;
    if (episode.phase == Phase::kAfter) {
      EXPECT_EQ(episode.max_version, 8u);
    }
  }
  // The log alone says all of it.
  Ledger replayed;
  (void)replayed.step(PlanSet{plan});
  for (const std::string& line : cluster.log) (void)replayed.step(*event_from_json(*parse_json(line)));
  EXPECT_EQ(replayed.books(), books);
  EXPECT_EQ(replayed.plan().steps, 8);
}

TEST(Extension, at_any_moment_leaves_the_books_right) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RunPlan plan = small_plan();
    plan.max_attempts = 100;
    plan.deterministic = seed % 3 == 0;
    Cluster cluster(plan, seed, 0.05);
    cluster.send(TrainerJoined{0});
    for (const char* worker : {"w0", "w1"}) cluster.send(WorkerJoined{worker, {}});
    for (uint64_t turn = 0; turn < seed * 9 && !cluster.finished; ++turn) cluster.turn();
    cluster.finished = false;
    cluster.send(Extended{6});
    cluster.go_on();
    ASSERT_TRUE(cluster.finished) << "seed " << seed;
    EXPECT_EQ(cluster.ledger.steps_trained(), 6u);
    EXPECT_EQ(cluster.ledger.books().in_flight, 0u);
    std::set<uint64_t> trained;
    for (const auto& [step, entries] : cluster.trained) {
      for (const auto& entry : entries) {
        EXPECT_TRUE(trained.insert(entry.key.episode).second) << "seed " << seed;
        EXPECT_EQ(cluster.ledger.episodes()[entry.key.episode].phase, Phase::kTrain);
      }
    }
    EXPECT_EQ(cluster.ledger.books().trained, trained.size());
    EXPECT_EQ(of_phase(cluster.ledger, Phase::kAfter), 9u) << "three tasks, two samples and a greedy one";
  }
}

TEST(Extension, to_fewer_steps_changes_nothing) {
  Ledger ledger(small_plan());
  for (const int steps : {4, 3, -1, kMostSteps + 1}) (void)ledger.step(Extended{steps});
  EXPECT_EQ(ledger.plan().steps, 4);
}

}  // namespace
}  // namespace tandem::rollout
