// A run directory as the program before this format wrote it is read; one of a newer format is refused by its number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rollout/books/ledger_log.h"
#include "rollout/books/trajectory.h"

namespace tandem::rollout {
namespace {

using testing::HasSubstr;

class RunBefore : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(run_);
    fs::create_directories(run_.parent_path());
    fs::copy(TANDEM_SOURCE_DIR "/tests/golden/run_before", run_, fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(run_); }

  static Result<RunPlan> plan_of_config() { return plan(); }
  // The plan of its config.resolved.json.
  static RunPlan plan() {
    return {.seed = 1,
            .steps = 3,
            .groups_per_step = 4,
            .group_size = 8,
            .max_lag = 1,
            .kinds = {"echo"},
            .heldout_tasks = 4,
            .heldout_samples = 2,
            .steal_from = 8};
  }

  void expect_its_books(const Ledger& ledger) {
    EXPECT_TRUE(ledger.finished());
    EXPECT_EQ(ledger.steps_trained(), 3u);
    EXPECT_EQ(ledger.books().admitted, 120u);
    EXPECT_EQ(ledger.books().trained, 96u);
    EXPECT_EQ(ledger.books().dropped, (std::map<std::string, uint64_t>{{"heldout", 24}}));
    EXPECT_EQ(ledger.books().in_flight, 0u);
  }

  const fs::path run_ = fs::path(testing::TempDir()) / ("run-before-" + std::to_string(::getpid()));
};

TEST_F(RunBefore, is_replayed_with_the_plan_of_its_config) {
  const auto ledger = read_books(run_, plan_of_config);
  ASSERT_TRUE(ledger) << ledger.error().to_string();
  expect_its_books(*ledger);
  EXPECT_EQ(ledger->plan().on_lag, OnLag::kUnbound);
}

TEST_F(RunBefore, has_its_trajectories) {
  const auto store = TrajectoryStore::open_to_read(run_ / "trajectories");
  ASSERT_TRUE(store) << store.error().to_string();
  EXPECT_EQ(store->size(), 120u);
  const auto first = store->read({0, 1});
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->numerics_id, "v2-avx512_bf16-bf16");
}

TEST_F(RunBefore, is_no_run_that_a_coordinator_goes_on_with_by_itself) {
  const auto log = LedgerLog::open(run_);
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().to_string(), HasSubstr("does not say what the run is to do"));
}

TEST_F(RunBefore, can_be_extended_and_then_needs_no_config) {
  RunPlan longer = plan();
  longer.steps = 5;
  ASSERT_TRUE(record_terms(run_, {plan(), {{"run.steps", 3}}}, {longer, {{"run.steps", 5}}}).ok());
  ASSERT_TRUE(record_terms(run_, {longer, {}}, {longer, {{"run.steps", 5}}}).ok()) << "a second time changes nothing";
  const auto nobody_knows = []() -> Result<RunPlan> { return fail(Status::internal("it was asked for")); };
  const auto ledger = read_books(run_, nobody_knows);
  ASSERT_TRUE(ledger) << ledger.error().to_string();
  EXPECT_EQ(ledger->plan().steps, 5);
  EXPECT_EQ(ledger->plan().on_lag, OnLag::kUnbound);
  EXPECT_EQ(ledger->config(), (Json{{"run.steps", 5}}));
  EXPECT_EQ(ledger->books().trained, 96u);
  EXPECT_FALSE(ledger->finished());
  const auto log = LedgerLog::open(run_);
  ASSERT_TRUE(log) << log.error().to_string();
  EXPECT_EQ(log->ledger().books(), ledger->books());
}

TEST_F(RunBefore, of_a_later_day_is_refused_by_its_number) {
  Json event = to_json(Event(PlanSet{plan()}));
  event["format"] = 7;
  fs::remove(ledger_log_path(run_));
  {
    auto log = RecordLog::open(ledger_log_path(run_));
    ASSERT_TRUE(log->append(dump_json(event)));
    auto trajectories = RecordLog::open(run_ / "trajectories" / "episodes.log");
    ASSERT_TRUE(trajectories->append("{\"format\":8,\"episode\":1}\n"));
  }
  for (const Status& status : {read_books(run_, plan_of_config).error(), LedgerLog::open(run_).error()}) {
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_THAT(status.to_string(), HasSubstr("format 7"));
  }
  EXPECT_THAT(TrajectoryStore::open_to_read(run_ / "trajectories").error().to_string(), HasSubstr("format 8"));
}

}  // namespace
}  // namespace tandem::rollout
