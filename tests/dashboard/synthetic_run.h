// A run directory as a run leaves it, made by driving the ledger: one worker that is granted everything, a trainer that
// trains every batch, rewards by a rule of the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <functional>

#include "base/record_log.h"
#include "dashboard/run_files.h"
#include "rollout/books/trajectory.h"

namespace tandem::dashboard {

class SyntheticRun {
 public:
  using Rule = std::function<double(const rollout::LeaseTerms& lease, rollout::Phase phase)>;

  explicit SyntheticRun(rollout::RunPlan plan) : plan_(plan), ledger_(plan) {
    dir_ =
        fs::temp_directory_path() / ("tandem-dashboard-" + std::to_string(::getpid()) + "-" + std::to_string(made_++));
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "ledger");
    write("config.resolved.json", R"({"run": {"seed": 5}, "model": {"path": "models/tiny"}})");
    log_.emplace(*rollout_log());
    store_.emplace(*rollout::TrajectoryStore::open(dir_ / "trajectories"));
  }
  ~SyntheticRun() { fs::remove_all(dir_); }

  const fs::path& dir() const { return dir_; }
  const rollout::RunPlan& plan() const { return plan_; }
  const rollout::Ledger& ledger() const { return ledger_; }

  void write(const std::string& name, const std::string& text) const { std::ofstream(dir_ / name) << text; }

  std::vector<rollout::Action> send(const rollout::Event& event) {
    EXPECT_TRUE(log_->append(dump_json(rollout::to_json(event))));
    auto actions = ledger_.step(event);
    for (const auto& action : actions) {
      if (const auto* grant = std::get_if<rollout::Grant>(&action)) {
        leases_.insert(leases_.end(), grant->leases.begin(), grant->leases.end());
      }
      if (const auto* batch = std::get_if<rollout::TrainBatch>(&action)) batches_.push_back(*batch);
      if (const auto* revoke = std::get_if<rollout::Revoke>(&action)) {
        std::erase_if(leases_, [&](const auto& lease) { return lease.key == revoke->key; });
      }
      finished_ = finished_ || std::holds_alternative<rollout::Finish>(action);
    }
    return actions;
  }

  // Until nothing is left to do, or `most` episodes were committed.
  void play(const Rule& rule, int most = 1 << 20) {
    send(rollout::TrainerJoined{0});
    send(rollout::WorkerJoined{"rollout-0", {}});
    send(rollout::Pull{"rollout-0", 1000});
    for (int turn = 0; turn < 100000 && !finished_; ++turn) {
      if (!batches_.empty()) {
        const uint64_t step = batches_.front().step;
        batches_.pop_front();
        send(rollout::Trained{step, {}});
      } else if (!leases_.empty()) {
        if (most-- == 0) return;
        const rollout::LeaseTerms lease = leases_.front();
        leases_.pop_front();
        commit(lease, rule(lease, ledger_.episodes()[lease.key.episode].phase));
      } else {
        send(rollout::Pull{"rollout-0", 1000});
      }
    }
  }

  // What every trajectory holds from now on.
  void speak(std::vector<int32_t> prompt, std::vector<int32_t> said) {
    prompt_ = std::move(prompt);
    said_ = std::move(said);
  }

  // Ten prompt tokens, then two sampled ones, if nothing else was asked for.
  void commit(const rollout::LeaseTerms& lease, double reward) {
    rollout::Trajectory trajectory{.key = lease.key, .group = lease.group, .numerics_id = "numerics-1"};
    trajectory.append(prompt_);
    float logprob = -0.1f;
    for (const int32_t token : said_)
      trajectory.append_sampled(token, std::exchange(logprob, -0.25f), lease.min_version);
    EXPECT_TRUE(store_->append(trajectory));
    send(rollout::Commit{.worker = "rollout-0",
                         .key = lease.key,
                         .outcome = rollout::Outcome::kCompleted,
                         .reason = "",
                         .reward = reward,
                         .terms = {{"files", reward}},
                         .first_version = lease.min_version,
                         .last_version = lease.min_version,
                         .turns = 1,
                         .tool_calls = 1,
                         .steals = 1,
                         .prompt_tokens = 10,
                         .sampled_tokens = 2,
                         .seconds = 0.5});
  }

 private:
  Result<RecordLog> rollout_log() { return RecordLog::open(dir_ / "ledger" / "events.log"); }

  static inline int made_ = 0;
  std::vector<int32_t> prompt_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, said_ = {11, 12};
  fs::path dir_;
  rollout::RunPlan plan_;
  rollout::Ledger ledger_;
  std::optional<RecordLog> log_;
  std::optional<rollout::TrajectoryStore> store_;
  std::deque<rollout::LeaseTerms> leases_;
  std::deque<rollout::TrainBatch> batches_;
  bool finished_ = false;
};

// Two kinds, two held-out tasks of each, two samples and a greedy one of every task; two steps of two groups of four.
inline rollout::RunPlan two_kinds() {
  return {.seed = 5,
          .steps = 2,
          .groups_per_step = 2,
          .group_size = 4,
          .max_lag = 0,
          .kinds = {"find", "set"},
          .heldout_tasks = 4,
          .heldout_samples = 2};
}

// Before, "find" 0 succeeds always, the rest never; after, all but "set" 1 do. In training every second episode
// succeeds.
inline double learns(const rollout::LeaseTerms& lease, rollout::Phase phase) {
  if (phase == rollout::Phase::kTrain) return static_cast<double>(lease.key.episode % 2);
  if (phase == rollout::Phase::kBefore) return lease.kind == "find" && lease.task_seed == 0 ? 1 : 0;
  return lease.kind == "set" && lease.task_seed == 1 ? 0 : 1;
}

}  // namespace tandem::dashboard
