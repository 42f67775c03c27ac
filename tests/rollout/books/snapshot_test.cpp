// A ledger that keeps only what is under way, and one that was restored from a snapshot, do what the full one does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rollout/books/ledger_log.h"
#include "tests/rollout/books/cluster.h"
#include "tests/rollout/books/whole_log.h"

namespace tandem::rollout {
namespace {

std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    text += fmt::format("{}", action.index());
    if (const auto* grant = std::get_if<Grant>(&action)) {
      for (const auto& lease : grant->leases)
        text += fmt::format(" {} {}/{} {} {}", grant->worker, lease.key.episode, lease.key.attempt, lease.kind,
                            lease.min_version);
    }
    if (const auto* batch = std::get_if<TrainBatch>(&action)) {
      for (const auto& entry : batch->entries) text += fmt::format(" {} {}", entry.key.episode, entry.advantage);
    }
    if (const auto* steal = std::get_if<Steal>(&action)) text += steal->thief + steal->victim;
    if (const auto* revoke = std::get_if<Revoke>(&action)) text += fmt::format(" {}", revoke->key.episode);
    text += "\n";
  }
  return text;
}

TEST(Snapshot, a_restored_ledger_goes_on_as_the_one_that_it_was) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RunPlan plan = small_plan();
    plan.max_attempts = 100;
    plan.steal_from = 1;
    plan.on_lag = seed % 2 == 0 ? OnLag::kWait : OnLag::kDrop;
    plan.deterministic = seed % 5 == 0;
    plan.dynamic_sampling = static_cast<int>(seed % 4);
    if (seed % 3 == 0) plan.counts = {{"a", {7, 2}}, {"b", {3, 1}}, {"c", {2, 0}}};
    Cluster cluster(plan, seed, 0.05);
    cluster.slow = 0.1;
    Ledger other(plan, History::kOpen);
    uint64_t events = 0;
    cluster.watchers.push_back([&](const Event& event, const std::vector<Action>& actions) {
      ASSERT_EQ(text_of(other.step(event)), text_of(actions)) << "seed " << seed << ", event " << events;
      ASSERT_EQ(other.books(), cluster.ledger.books());
      ASSERT_EQ(other.in_states(), cluster.ledger.in_states());
      if (++events % 37 != 0) return;
      auto restored = Ledger::restore(other.snapshot());
      ASSERT_TRUE(restored) << restored.error().message();
      ASSERT_EQ(restored->books(), other.books());
      other = std::move(*restored);
    });
    cluster.run();
    ASSERT_TRUE(cluster.finished) << "seed " << seed;
    EXPECT_TRUE(other.finished());
  }
}

TEST(Snapshot, that_is_cut_or_changed_is_refused_and_never_half_read) {
  Cluster cluster(small_plan(), 1, 0);
  Ledger other(small_plan(), History::kOpen);
  cluster.watchers.push_back([&](const Event& event, const auto&) { (void)other.step(event); });
  cluster.run();
  const std::string whole = other.snapshot();
  EXPECT_TRUE(Ledger::restore(whole));
  for (size_t length = 0; length < whole.size(); length += 1 + length / 20)
    EXPECT_FALSE(Ledger::restore(std::string_view(whole).substr(0, length))) << length;
  EXPECT_FALSE(Ledger::restore(whole + "x"));
}

class LedgerLogTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(run_);
    fs::create_directories(run_);
    ASSERT_TRUE(record_terms(run_, {plan_, {}}, {plan_, {{"run.steps", 4}}}).ok());
  }
  void TearDown() override { fs::remove_all(run_); }

  // All events of a whole run, with snapshots on the way.
  Books write_run() {
    auto log = LedgerLog::open(run_, 60);
    EXPECT_TRUE(log) << log.error().to_string();
    Cluster cluster(plan_, 1, 0.02);
    cluster.watchers.push_back([&](const Event& event, const auto& actions) {
      const auto same = log->apply(event);
      ASSERT_TRUE(same);
      EXPECT_EQ(text_of(*same), text_of(actions));
      EXPECT_TRUE(log->save_snapshot_if_due().ok());
    });
    cluster.run();
    EXPECT_TRUE(cluster.finished);
    EXPECT_TRUE(log->sync().ok());
    return log->ledger().books();
  }
  Books books_on_disk() {
    const auto log = LedgerLog::open(run_);
    EXPECT_TRUE(log) << log.error().to_string();
    return log->ledger().books();
  }

  const RunPlan plan_ = small_plan();
  const fs::path run_ = fs::path(testing::TempDir()) / ("ledger-log-" + std::to_string(::getpid()));
};

TEST_F(LedgerLogTest, a_restart_has_the_same_books_with_a_snapshot_without_one_and_with_a_damaged_one) {
  const Books books = write_run();
  const fs::path snapshot = run_ / "ledger" / "snapshot";
  ASSERT_TRUE(fs::exists(snapshot));
  EXPECT_EQ(books_on_disk(), books);
  const std::string whole = *read_file(snapshot);
  for (const size_t at : {size_t{3}, size_t{20}, size_t{35}, size_t{60}, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_TRUE(write_file(snapshot, damaged).ok());
    EXPECT_EQ(books_on_disk(), books) << at;
  }
  ASSERT_TRUE(write_file(snapshot, whole.substr(0, 50)).ok());
  EXPECT_EQ(books_on_disk(), books);
  fs::remove(snapshot);
  EXPECT_EQ(books_on_disk(), books);
  const auto nobody_knows = []() -> Result<RunPlan> { return fail(Status::internal("it was asked for")); };
  EXPECT_EQ(read_books(run_, nobody_knows)->books(), books);
  EXPECT_EQ(whole_log(run_).books(), books);
}

TEST_F(LedgerLogTest, a_snapshot_of_what_the_log_has_lost_is_not_used) {
  (void)write_run();
  fs::resize_file(ledger_log_path(run_), 2000);
  EXPECT_EQ(books_on_disk(), whole_log(run_).books());
}

TEST_F(LedgerLogTest, terms_that_were_recorded_are_recorded_once) {
  const uint64_t before = fs::file_size(ledger_log_path(run_));
  ASSERT_TRUE(record_terms(run_, {plan_, {}}, {plan_, {{"run.steps", 4}}}).ok());
  EXPECT_EQ(fs::file_size(ledger_log_path(run_)), before);
  ASSERT_TRUE(record_terms(run_, {plan_, {}}, {plan_, {{"run.steps", 4}, {"trainer.learning_rate", 0.5}}}).ok());
  EXPECT_EQ(whole_log(run_).config(), (Json{{"run.steps", 4}, {"trainer.learning_rate", 0.5}}));
}

}  // namespace
}  // namespace tandem::rollout
