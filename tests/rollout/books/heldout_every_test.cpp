// Held-out tasks that are measured while training goes on.
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "rollout/books/ledger.h"
#include "rollout/books/measured_checkpoints.h"

namespace tandem::rollout {
namespace {

RunPlan every_second_step() {
  return {.seed = 3,
          .steps = 6,
          .groups_per_step = 1,
          .group_size = 4,
          .max_lag = 1,
          .kinds = {"set"},
          .heldout_tasks = 2,
          .heldout_samples = 3,
          .heldout_every = 2};
}

// One worker with many slots and a trainer that trains what it is sent, at once unless it is told to wait.
class Loop {
 public:
  explicit Loop(RunPlan plan) : ledger_(plan) {
    send(TrainerJoined{0});
    send(WorkerJoined{"rollout-0", {}});
    pull();
  }

  void pull() { send(Pull{"rollout-0", 32}); }
  void send(const Event& event) {
    for (const Action& action : ledger_.step(event)) {
      if (const auto* grant = std::get_if<Grant>(&action))
        leases_.insert(leases_.end(), grant->leases.begin(), grant->leases.end());
      if (const auto* batch = std::get_if<TrainBatch>(&action)) batches_.push_back(batch->step);
      if (const auto* revoke = std::get_if<Revoke>(&action))
        std::erase_if(leases_, [&](const auto& lease) { return lease.key == revoke->key; });
      if (const auto* begun = std::get_if<HeldoutBegun>(&action)) begun_.push_back(begun->step);
      if (const auto* done = std::get_if<HeldoutDone>(&action)) done_.push_back(done->step);
      if (std::holds_alternative<Finish>(action)) finished_ = true;
    }
    const Books books = ledger_.books();
    ASSERT_EQ(books.admitted, books.trained + books.dropped_total() + books.in_flight);
  }
  Phase phase_of(const LeaseTerms& lease) const { return ledger_.episodes()[lease.key.episode].phase; }
  void commit(const LeaseTerms& lease, double reward) {
    std::erase_if(leases_, [&](const auto& other) { return other.key == lease.key; });
    send(Commit{.worker = "rollout-0",
                .key = lease.key,
                .outcome = Outcome::kCompleted,
                .reward = reward,
                .first_version = lease.min_version,
                .last_version = std::max(lease.min_version, ledger_.steps_trained()),
                .sampled_tokens = 1});
  }
  // Commits everything of a phase that is leased, and what is leased then.
  void play(std::initializer_list<Phase> phases) {
    for (bool any = true; any;) {
      any = false;
      const std::vector<LeaseTerms> leases(leases_.begin(), leases_.end());
      for (const LeaseTerms& lease : leases) {
        const Phase phase = phase_of(lease);
        if (std::find(phases.begin(), phases.end(), phase) == phases.end()) continue;
        // Success rises with the version; in training every second episode succeeds.
        const bool passed = phase == Phase::kTrain
                                ? lease.key.episode % 2 == 1
                                : lease.key.episode % 4 < ledger_.episodes()[lease.key.episode].min_version;
        commit(lease, passed ? 1 : 0);
        any = true;
      }
      pull();
    }
  }
  // One step, if there is a batch.
  bool train() {
    if (batches_.empty()) return false;
    const uint64_t step = batches_.front();
    batches_.pop_front();
    send(Trained{step, {}});
    send(Checkpointed{step});
    return true;
  }
  void play_to_the_end() {
    for (int turn = 0; turn < 1000 && !finished_; ++turn) {
      play({Phase::kBefore, Phase::kTrain, Phase::kDuring, Phase::kAfter});
      train();
    }
  }

  Ledger ledger_;
  std::deque<LeaseTerms> leases_;
  std::deque<uint64_t> batches_;
  std::vector<uint64_t> begun_, done_;
  bool finished_ = false;
};

TEST(HeldoutEveryTest, each_step_that_is_due_is_measured_once_and_the_last_after_training) {
  Loop loop(every_second_step());
  loop.play_to_the_end();
  ASSERT_TRUE(loop.finished_);
  EXPECT_EQ(loop.begun_, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(loop.done_, (std::vector<uint64_t>{2, 4, 6}));
  for (const uint64_t step : {2, 4, 6}) {
    const auto& measured = loop.ledger_.measurements().at(step);
    EXPECT_TRUE(measured.is_complete);
    EXPECT_EQ(measured.samples, 6) << step;
    EXPECT_EQ(measured.greedy_samples, 2) << step;
  }
  EXPECT_EQ(loop.ledger_.steps_trained(), 6u);
  EXPECT_EQ(loop.ledger_.measuring(), 0u);
}

TEST(HeldoutEveryTest, training_goes_on_while_a_measurement_does_not_end) {
  Loop loop(every_second_step());
  loop.play({Phase::kBefore});
  size_t most = 0;
  for (int turn = 0; turn < 100 && loop.ledger_.steps_trained() < 5; ++turn) {
    loop.play({Phase::kTrain});
    size_t during = 0;
    for (const auto& lease : loop.leases_) during += loop.phase_of(lease) == Phase::kDuring;
    most = std::max(most, during);
    loop.train();
  }
  EXPECT_EQ(loop.ledger_.steps_trained(), 5u);
  EXPECT_GT(most, 0u) << "it has slots of its own";
  EXPECT_LE(most, 8u) << "a quarter of what there is";
  EXPECT_EQ(loop.begun_, std::vector<uint64_t>{2}) << "step 4 fell due while step 2 was measured";
  // It ends with the training: what is left of it would measure another model.
  loop.play({Phase::kTrain});
  loop.train();
  EXPECT_EQ(loop.ledger_.measuring(), 0u);
  loop.play_to_the_end();
  EXPECT_TRUE(loop.finished_);
  EXPECT_FALSE(loop.ledger_.measurements().contains(2));
  EXPECT_EQ(loop.done_, std::vector<uint64_t>{6});
}

TEST(HeldoutEveryTest, a_deterministic_run_waits_so_that_one_version_is_measured) {
  RunPlan plan = every_second_step();
  plan.deterministic = true;
  Loop loop(plan);
  loop.play({Phase::kBefore});
  for (int turn = 0; turn < 100; ++turn) {
    loop.play({Phase::kTrain});
    if (!loop.train() && loop.ledger_.steps_trained() >= 2) break;
  }
  EXPECT_EQ(loop.ledger_.steps_trained(), 2u) << "the next batch waits";
  for (const auto& lease : loop.leases_) {
    if (loop.phase_of(lease) != Phase::kDuring) continue;
    EXPECT_EQ(lease.min_version, 2u);
    EXPECT_EQ(lease.max_version, 2u);
  }
  loop.play_to_the_end();
  EXPECT_TRUE(loop.finished_);
  EXPECT_EQ(loop.ledger_.measurements().at(4).last_version, 4u);
}

TEST(HeldoutEveryTest, a_step_that_is_trained_again_is_not_measured_again) {
  Loop loop(every_second_step());
  loop.play({Phase::kBefore, Phase::kTrain});
  loop.train();
  loop.play({Phase::kTrain});
  loop.train();
  ASSERT_EQ(loop.begun_, std::vector<uint64_t>{2});
  const uint64_t admitted = loop.ledger_.books().admitted;
  loop.batches_.clear();
  loop.send(TrainerJoined{1});  // with the checkpoint of step 1
  ASSERT_EQ(loop.batches_.front(), 2u);
  loop.train();
  EXPECT_EQ(loop.begun_, std::vector<uint64_t>{2});
  EXPECT_EQ(loop.ledger_.books().admitted, admitted);
}

TEST(HeldoutEveryTest, a_snapshot_keeps_what_is_measured) {
  Loop loop(every_second_step());
  Ledger kept(every_second_step(), History::kOpen);
  loop.ledger_ = std::move(kept);
  loop.send(TrainerJoined{0});
  loop.send(WorkerJoined{"rollout-0", {}});
  loop.leases_.clear();
  loop.pull();
  loop.play({Phase::kBefore, Phase::kTrain});
  loop.train();
  loop.play({Phase::kTrain});
  loop.train();
  ASSERT_EQ(loop.ledger_.measuring(), 2u);
  auto restored = Ledger::restore(loop.ledger_.snapshot());
  ASSERT_TRUE(restored) << restored.error().to_string();
  EXPECT_EQ(restored->snapshot(), loop.ledger_.snapshot());
  loop.ledger_ = std::move(*restored);
  loop.play_to_the_end();
  EXPECT_TRUE(loop.finished_);
  EXPECT_EQ(loop.ledger_.measurements().at(2).samples, 6);
}

TEST(HeldoutEveryTest, the_best_is_the_step_with_the_most_success_that_has_a_checkpoint) {
  Loop loop(every_second_step());
  loop.play_to_the_end();
  const auto& measured = loop.ledger_.measurements();
  ASSERT_GT(measured.at(4).pass_rate(), measured.at(2).pass_rate());
  const auto all = [](uint64_t) { return true; };
  EXPECT_EQ(measured.at(6).pass_rate(), measured.at(4).pass_rate());
  EXPECT_EQ(best_step(loop.ledger_, all), 6u) << "of equals the later";
  EXPECT_EQ(best_step(loop.ledger_, [](uint64_t step) { return step < 6; }), 4u);
  EXPECT_EQ(best_step(loop.ledger_, [](uint64_t) { return false; }), std::nullopt);
}

}  // namespace
}  // namespace tandem::rollout
