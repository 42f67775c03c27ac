// A reader that holds only what is under way sees every episode as a ledger does that holds all of them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rollout/books/ledger_log.h"
#include "tests/rollout/books/cluster.h"
#include "tests/rollout/books/whole_log.h"

namespace tandem::rollout {
namespace {

std::string text_of(const EpisodeRecord& r) {
  return fmt::format("{}/{} group {} {} {} {}/{}/{} at {} [{}, {}] {} by {} dropped {} commit {} advantage {} step {}",
                     r.episode, r.attempt, r.group, to_string(r.phase), to_string(r.state), r.kind, r.split,
                     r.task_seed, r.temperature, r.min_version, r.max_version, r.failures, r.worker, r.dropped,
                     r.commit ? dump_json(to_json(Event(*r.commit))) : "-", r.advantage, r.step);
}

class ReadEpisodes : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(run_);
    fs::create_directories(run_);
    ASSERT_TRUE(record_terms(run_, {plan_, {}}, {plan_, {}}).ok());
  }
  void TearDown() override { fs::remove_all(run_); }

  void expect_all_as_the_full_ledger_has_them() {
    const Ledger full = whole_log(run_);
    std::vector<std::string> wanted, got;
    for (const EpisodeRecord& record : full.episodes()) wanted.push_back(text_of(record));
    const auto books = read_episodes(run_, plan_, [&](const EpisodeRecord& record) {
      got.push_back(text_of(record));
      return Status();
    });
    ASSERT_TRUE(books) << books.error().to_string();
    EXPECT_EQ(books->books(), full.books());
    ASSERT_EQ(got, wanted);
  }

  const RunPlan plan_ = [] {
    RunPlan plan = small_plan();
    plan.max_attempts = 5;
    return plan;
  }();
  const fs::path run_ = fs::path(testing::TempDir()) / ("read-episodes-" + std::to_string(::getpid()));
};

// Faults, batches that are trained again, lost trajectories, an extension: whatever changes an episode that had ended.
TEST_F(ReadEpisodes, gives_what_the_whole_log_says_of_each_wherever_the_log_ends) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    SetUp();
    auto log = LedgerLog::open(run_, 40);
    ASSERT_TRUE(log) << log.error().to_string();
    Cluster cluster(plan_, seed, 0.08);
    uint64_t events = 0;
    cluster.watchers.push_back([&](const Event& event, const auto&) {
      Event logged = event;
      if (auto* trained = std::get_if<Trained>(&logged); trained != nullptr && trained->step % 2 == 1) {
        const TrainBatch* batch = log->ledger().batch(trained->step);
        if (batch != nullptr && !batch->entries.empty()) trained->missing = {batch->entries.front().key};
      }
      ASSERT_TRUE(log->apply(logged));
      if (seed % 2 == 0) {
        ASSERT_TRUE(log->save_snapshot_if_due().ok());
      }
      if (++events % 53 != 0) return;
      ASSERT_TRUE(log->sync().ok());
      expect_all_as_the_full_ledger_has_them();
    });
    cluster.run();
    cluster.finished = false;
    cluster.send(Extended{6});
    expect_all_as_the_full_ledger_has_them();
    cluster.go_on();
    expect_all_as_the_full_ledger_has_them();
    log = fail(Status::cancelled("closed"));
  }
}

TEST_F(ReadEpisodes, ends_where_a_visit_fails_and_says_why) {
  auto log = LedgerLog::open(run_);
  ASSERT_TRUE(log);
  Cluster cluster(plan_, 1, 0);
  cluster.watchers.push_back([&](const Event& event, const auto&) { ASSERT_TRUE(log->apply(event)); });
  cluster.run();
  int visits = 0;
  const auto books = read_episodes(
      run_, plan_, [&](const EpisodeRecord&) { return ++visits == 3 ? Status::invalid("enough") : Status(); });
  ASSERT_FALSE(books);
  EXPECT_EQ(books.error().message(), "enough");
  EXPECT_EQ(visits, 3);
}

}  // namespace
}  // namespace tandem::rollout
