// The decisions about the roles of a run, for random runs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "run/supervision.h"

namespace tandem::run {
namespace {

using namespace std::chrono_literals;

// A run of processes that die, hang or leave, beside events that are lost, doubled and late.
class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : random_(seed) {}

  void play() {
    Time interrupt_at = now_ + std::chrono::seconds(random_.below(120));
    const double deaths = random_.uniform() * 0.02;
    for (int turn = 0; turn < 2000 && !finish_; ++turn, now_ += 250ms) {
      for (auto& [process, peer] : std::map(alive_)) {
        if (hung_.contains(process)) continue;
        if (random_.chance(deaths)) leave(process, random_.chance(0.3) ? 0 : 1);
        if (random_.chance(0.002)) hung_.insert(process);
      }
      if (now_ > interrupt_at) {
        interrupt_at += std::chrono::seconds(random_.below(400));
        using By = Supervision::Interrupted::By;
        send(Supervision::Interrupted{random_.chance(0.5) ? By::kPerson : By::kScheduler});
      }
      report();
      for (auto it = coming_.begin(); it != coming_.end();) {
        if (it->first > now_) {
          ++it;
          continue;
        }
        apply(it->second);
        it = coming_.erase(it);
      }
      apply(Supervision::Tick{});
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(finish_) << "it never ends";
    for (const auto& [at, event] : std::multimap(coming_)) apply(event);
    EXPECT_TRUE(alive_.empty());
    EXPECT_EQ(finish_->failure.empty(), finish_->end != Supervision::End::kFailed);
  }

  Supervision::End end() const { return finish_.value().end; }

 private:
  void send(const Supervision::Event& event) {
    coming_.emplace(now_ + std::chrono::milliseconds(random_.below(600)), event);
    if (random_.chance(0.1)) coming_.emplace(now_ + std::chrono::milliseconds(random_.below(5000)), event);
  }
  void leave(int64_t process, int code, int signal = 0) {
    const bool was_coordinator = alive_.at(process) == kCoordinator;
    alive_.erase(process);
    if (random_.chance(0.98))
      send(Supervision::Exited{{process, code, signal}, was_coordinator && random_.chance(0.5)});
  }
  void report() {
    const bool coordinator_works = std::any_of(alive_.begin(), alive_.end(), [&](const auto& entry) {
      return entry.second == kCoordinator && !hung_.contains(entry.first);
    });
    if (!coordinator_works || random_.chance(0.3)) return;
    Supervision::Heard heard;
    for (const auto& [process, peer] : alive_)
      heard.roles[peer] = {epochs_[peer], hung_.contains(process) ? 9.0 : 0.0, "working"};
    send(heard);
  }
  void apply(const Supervision::Event& event) {
    for (const auto& action : machine_.step(event, now_)) {
      if (const auto* start = std::get_if<Supervision::Start>(&action)) {
        ASSERT_FALSE(finish_);
        for (const auto& [process, peer] : alive_) ASSERT_NE(peer, start->peer) << "started twice at a time";
        if (random_.chance(0.001)) {
          send(Supervision::StartFailed{start->peer, "no memory"});
          continue;
        }
        alive_[++last_process_] = start->peer;
        send(Supervision::Started{start->peer, last_process_, ++epochs_[start->peer], 100});
      } else if (const auto* silent = std::get_if<Supervision::EndSilent>(&action)) {
        ASSERT_TRUE(named_.insert(silent->process).second) << "named twice";
        if (alive_.contains(silent->process)) leave(silent->process, 0, SIGKILL);
      } else if (const auto* ask = std::get_if<Supervision::Ask>(&action)) {
        if (alive_.contains(ask->process) && !hung_.contains(ask->process)) leave(ask->process, 0);
      } else if (const auto* stop = std::get_if<Supervision::Stop>(&action)) {
        for (const int64_t process : stop->processes) alive_.erase(process);
      } else if (const auto* finish = std::get_if<Supervision::Finish>(&action)) {
        ASSERT_FALSE(finish_) << "finished twice";
        finish_ = *finish;
      }
    }
  }

  static constexpr wire::Peer kCoordinator{wire::Role::kCoordinator, 0};

  Random random_;
  Supervision machine_{Supervision::Plan{.roles = {kCoordinator, {wire::Role::kTrainer, 0}, {wire::Role::kRollout, 0}},
                                         .max_restarts = 20,
                                         .silence_seconds = 8,
                                         .start_seconds = 20}};
  Time now_ = Time{} + 1000s;
  std::multimap<Time, Supervision::Event> coming_;
  std::map<int64_t, wire::Peer> alive_;
  std::set<int64_t> hung_, named_;
  std::map<wire::Peer, uint64_t> epochs_;
  int64_t last_process_ = 0;
  std::optional<Supervision::Finish> finish_;
};

TEST(SupervisionUnderChance, every_run_ends_and_no_role_runs_twice_whatever_becomes_of_events) {
  std::set<Supervision::End> ends;
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomRun run(seed);
    ASSERT_NO_FATAL_FAILURE(run.play());
    ends.insert(run.end());
  }
  EXPECT_EQ(ends.size(), 3u) << "done, interrupted and failed";
}

}  // namespace
}  // namespace tandem::run
