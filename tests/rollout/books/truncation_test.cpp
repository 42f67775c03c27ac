// What sampling cuts off: a part of a run's plan, and of the leases of training alone.
#include "rollout/books/truncation.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "rollout/books/lease.h"
#include "tests/rollout/books/cluster.h"
#include "wire/socket.h"

namespace tandem::rollout {
namespace {

constexpr Truncation kCut = {.top_k = 40, .top_p = 0.9f, .min_p = 0.05f};

TEST(Truncation, is_a_part_of_the_plan_and_plans_without_are_as_they_were) {
  RunPlan plan = small_plan();
  EXPECT_FALSE(to_json(plan).contains("truncation"));
  plan.truncation = kCut;
  EXPECT_EQ(*plan_from_json(to_json(plan)), plan);
  EXPECT_NE(plan, small_plan());
  for (const Truncation& wrong :
       {Truncation{.top_k = -1}, Truncation{.top_p = 0}, Truncation{.top_p = 1.5f}, Truncation{.min_p = 1}}) {
    plan.truncation = wrong;
    EXPECT_FALSE(check(plan).ok());
    EXPECT_FALSE(plan_from_json(to_json(plan))) << to_json(plan);
  }
}

TEST(Truncation, is_in_leases_of_training_and_in_none_that_measure) {
  RunPlan plan = small_plan();
  plan.truncation = kCut;
  Ledger ledger(plan);
  (void)ledger.step(TrainerJoined{0});
  (void)ledger.step(WorkerJoined{"w0", {}});
  const auto actions = ledger.step(Pull{"w0", 1000});
  int training = 0, measuring = 0;
  for (const Action& action : actions) {
    const auto* grant = std::get_if<Grant>(&action);
    for (size_t i = 0; grant != nullptr && i < grant->leases.size(); ++i) {
      const LeaseTerms& lease = grant->leases[i];
      const bool trains = lease.split == "train";
      EXPECT_EQ(lease.truncation, trains ? kCut : Truncation());
      (trains ? training : measuring) += 1;
    }
  }
  EXPECT_GT(measuring + training, 0);
  plan.heldout_tasks = 0;
  Ledger without(plan);
  (void)without.step(TrainerJoined{0});
  (void)without.step(WorkerJoined{"w0", {}});
  for (const Action& action : without.step(Pull{"w0", 4})) {
    const auto* grant = std::get_if<Grant>(&action);
    for (size_t i = 0; grant != nullptr && i < grant->leases.size(); ++i) {
      EXPECT_EQ(grant->leases[i].truncation, kCut);
      ++training;
    }
  }
  EXPECT_GT(training, 0);
  EXPECT_GT(measuring, 0);
}

TEST(Truncation, is_said_on_the_wire) {
  wire::Outgoing message;
  auto leases = message.body().initGrant().initLeases(2);
  write_lease({.key = {7, 1}, .truncation = kCut}, leases[0]);
  write_lease({.key = {8, 1}}, leases[1]);
  const auto read = message.body().getGrant().getLeases().asReader();
  EXPECT_EQ(read_lease(read[0]).truncation, kCut);
  EXPECT_EQ(read_lease(read[1]).truncation, Truncation());
  wire::Outgoing before;  // whose sender knew nothing of it
  before.body().initGrant().initLeases(1);
  EXPECT_EQ(read_lease(before.body().getGrant().getLeases()[0].asReader()).truncation, Truncation());
}

}  // namespace
}  // namespace tandem::rollout
