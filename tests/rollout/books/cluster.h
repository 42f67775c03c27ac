// Workers and a trainer around a ledger: what tests of the books drive it with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "rollout/books/ledger.h"

namespace tandem::rollout {

inline RunPlan small_plan() {
  return {.seed = 5,
          .steps = 4,
          .groups_per_step = 2,
          .group_size = 3,
          .max_lag = 1,
          .kinds = {"a", "b", "c"},
          .heldout_tasks = 3,
          .heldout_samples = 2};
}

// Workers and a trainer that do what they are told, or fail at random.
class Cluster {
 public:
  Cluster(RunPlan plan, uint64_t seed, double fault) : ledger(plan), random_(seed), fault_(fault) {}

  void send(const Event& event) {
    // What is logged must say the same when it is read again.
    log.push_back(to_json(event).dump());
    const auto actions = ledger.step(event);
    for (const auto& watch : watchers) watch(event, actions);
    const Books books = ledger.books();
    ASSERT_EQ(books.admitted, books.trained + books.dropped_total() + books.in_flight);
    for (const Action& action : actions) {
      if (const auto* grant = std::get_if<Grant>(&action)) {
        for (const auto& lease : grant->leases) held[grant->worker].push_back(lease);
      }
      if (const auto* batch = std::get_if<TrainBatch>(&action)) batches.push_back(*batch);
      if (const auto* revoke = std::get_if<Revoke>(&action)) {
        std::erase_if(held[revoke->worker], [&](const LeaseTerms& lease) { return lease.key == revoke->key; });
      }
      if (const auto* compare = std::get_if<Compare>(&action)) comparisons.push_back(*compare);
      if (std::holds_alternative<Finish>(action)) finished = true;
    }
  }

  void run() {
    send(TrainerJoined{0});
    for (const char* worker : {"w0", "w1"}) send(WorkerJoined{worker, {}});
    go_on();
  }

  void go_on() {
    for (int i = 0; i < 20000 && !finished; ++i) turn();
  }

  Ledger ledger;
  std::map<std::string, std::vector<LeaseTerms>> held;
  std::deque<TrainBatch> batches;
  std::deque<Compare> comparisons;  // that the judge has not made yet
  std::vector<std::string> log;
  std::vector<std::function<void(const Event&, const std::vector<Action>&)>> watchers;
  bool finished = false;
  size_t room = 2;                                      // leases that a worker holds at most
  bool lies = false;                                    // episodes that say that their first token is of version 0
  double failing_judge = 0;                             // share of groups that it cannot compare
  std::vector<double> turn_rewards;                     // of each episode
  std::map<std::string, double> terms;                  // the same
  std::optional<Behaviour> behaviour;                   // the same
  double slow = 0;                                      // share of episodes that take a hundred times as long
  std::map<uint64_t, std::vector<BatchEntry>> trained;  // what survived, by step
  std::map<EpisodeKey, uint64_t> first_versions;        // with which its first token was sampled

  void turn() {
    if (!comparisons.empty() && random_.chance(0.2)) return judge();
    const std::string worker = random_.chance(0.5) ? "w0" : "w1";
    auto& mine = held[worker];
    if (random_.chance(fault_)) {
      const auto choice = random_.below(3);
      if (choice == 0) {
        mine.clear();
        send(WorkerLost{worker});
        send(WorkerJoined{worker, {}});
      } else if (choice == 1) {
        batches.clear();
        std::erase_if(trained, [&](const auto& t) { return t.first > ledger.checkpointed(); });
        send(TrainerJoined{ledger.checkpointed()});
      } else if (!mine.empty()) {
        const LeaseTerms lease = mine.back();
        send(Expired{lease.key});
        commit(worker, lease, Outcome::kCompleted);  // too late
      }
      return;
    }
    if (mine.size() < room && random_.chance(0.5)) {
      return send(Pull{worker, static_cast<uint32_t>(room - mine.size())});
    }
    if (!mine.empty() && random_.chance(0.6)) {
      const auto next = ready(mine);
      if (next == mine.end()) return;
      const LeaseTerms lease = *next;
      mine.erase(next);
      if (!random_.chance(fault_)) return commit(worker, lease, Outcome::kCompleted);
      return commit(worker, lease, lease.key.episode % 3 == 0 ? Outcome::kCancelled : Outcome::kInfraError);
    }
    if (batches.empty()) return;
    const TrainBatch batch = batches.front();
    batches.pop_front();
    trained[batch.step] = batch.entries;
    send(Trained{batch.step, {}});
    if (batch.step % 2 == 0) send(Checkpointed{batch.step});
  }

 private:
  // Prefers later episodes of a group.
  void judge() {
    const Compare asked = comparisons.front();
    comparisons.pop_front();
    Compared verdict{.group = asked.group, .preferred = {}, .failure = {}};
    if (random_.chance(failing_judge)) verdict.failure = "the judge is away";
    for (size_t i = 0; verdict.failure.empty() && i < asked.candidates.size(); ++i)
      verdict.preferred.emplace_back(asked.candidates[i].key, static_cast<double>(i) / asked.candidates.size());
    send(verdict);
  }

  // The lease that ends next. What the weights are not there for cannot end.
  std::vector<LeaseTerms>::iterator ready(std::vector<LeaseTerms>& mine) {
    if (slow == 0) return mine.begin();
    return std::find_if(mine.begin(), mine.end(), [&](const LeaseTerms& lease) {
      const bool crawls = uniform_at(lease.sample_seed, 0) < slow;
      return lease.min_version <= ledger.steps_trained() && (!crawls || random_.chance(0.01));
    });
  }

  void commit(const std::string& worker, const LeaseTerms& lease, Outcome outcome) {
    Commit event{.worker = worker, .key = lease.key, .outcome = outcome};
    // It sampled with what was there when it began, or with something newer.
    const uint64_t newest = std::max(ledger.steps_trained(), lease.min_version);
    event.first_version =
        lease.min_version + derive_seed(lease.sample_seed, {2, newest}) % (newest - lease.min_version + 1);
    if (lies && lease.key.episode % 5 == 0) event.first_version = 0;
    event.sampled_tokens = 1 + static_cast<uint32_t>(lease.key.episode % 7) * 100;
    first_versions[lease.key] = event.first_version;
    event.turn_rewards = turn_rewards;
    event.terms = terms;
    event.behaviour = behaviour;
    if (is_of_policy(outcome)) event.reward = static_cast<double>(derive_seed(lease.sample_seed, {1}) % 2);
    send(event);
  }

  Random random_;
  double fault_;
};

}  // namespace tandem::rollout
