// The life of an episode in rollouts, for random worlds: every message may be lost, doubled, late and out of order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "base/random.h"
#include "rollout/episode.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kMostAttempts = 4, kTurns = 3;

// An episode in two rollouts, with servers, a trainer and a coordinator that are as careful as the real ones.
class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed) : random_(seed) {
    loses_ = random_.chance(0.7) ? random_.uniform() * 0.2 : 0;
    is_calm_ = loses_ == 0;
    steals_ = random_.uniform() * 0.02;
    deaths_ = is_calm_ ? 0 : random_.uniform() * 0.002;
  }

  void play() {
    const Time weights_at = now_ + std::chrono::milliseconds(random_.below(5000));
    grant();
    for (int turn = 0; turn < 60'000 && !is_settled(); ++turn, now_ += 100ms) {
      if (now_ >= weights_at) version_ = 1 + static_cast<uint64_t>((now_ - weights_at) / 10s);
      for (int server = 0; server < kServers; ++server) {
        if (random_.chance(deaths_)) end_server(server);
      }
      if (random_.chance(steals_)) steal();
      if (!is_done_ && (now_ > deadline_ || random_.chance(0.001))) expire();
      while (!coming_.empty() && coming_.begin()->first <= now_) {
        const auto message = std::move(coming_.begin()->second);
        coming_.erase(coming_.begin());
        message();
      }
      for (int rollout = 0; rollout < kRollouts; ++rollout) {
        step(rollout, Episode::Tick{version_});
        sample(rollout);
        for (int server = 0; server < kServers; ++server) {
          if (lost_.contains(server)) step(rollout, Episode::ServerLost{server});
        }
      }
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(is_settled()) << "it never ends";
    EXPECT_TRUE(!is_calm_ || sandboxes_.empty()) << "somebody forgot to release a sandbox";
  }

  bool is_trained() const { return is_trained_; }
  uint32_t attempts() const { return attempt_; }
  bool was_claimed() const { return was_claimed_; }

 private:
  static constexpr int kServers = 3, kRollouts = 2;
  struct Sandbox {
    int server = 0;
    uint32_t answered = 0;               // turns
    std::map<uint32_t, uint64_t> asked;  // what was said in each, by its number
    bool is_graded = false;
  };
  // What a rollout has, and what it must not do again.
  struct Life {
    template <typename From>  // LeaseTerms or Handover
    Life(From from, uint64_t number, Time now)
        : episode(std::move(from), {.numerics_id = "n", .patience = 30s}, now), number(number) {}
    Episode episode;
    uint64_t number;              // of all lives
    std::set<uint32_t> answered;  // turns
    std::set<uint64_t> released;  // sandboxes that were its own
    uint32_t called = 0;          // the turn whose calls were sent last
    int left_to_sample = 0;
  };

  bool is_settled() const {
    const bool is_held = std::any_of(lives_.begin(), lives_.end(), [](const auto& life) { return life.has_value(); });
    return is_done_ && !is_held && coming_.empty();
  }
  EpisodeKey key() const { return {.episode = 1, .attempt = attempt_}; }

  void send(std::function<void()> message) {
    if (random_.chance(loses_)) return;
    const bool is_doubled = random_.chance(0.1);
    coming_.emplace(delay(), message);
    if (is_doubled) coming_.emplace(delay(), std::move(message));
  }
  Time delay() { return now_ + std::chrono::milliseconds(random_.below(random_.chance(0.05) ? 40'000 : 500)); }
  // To a rollout, of an attempt.
  void tell(int rollout, const EpisodeKey& to, const Episode::Event& event) {
    send([this, rollout, to, event] {
      if (lives_[rollout] && lives_[rollout]->episode.key() == to) step(rollout, event);
    });
  }
  // From the environment, whose answers are heard by the life that asked.
  struct Asker {
    int rollout = 0;
    uint64_t life = 0;
    EpisodeKey key;
  };
  void answer(const Asker& asker, Episode::Event event) {
    send([this, asker, event = std::move(event)] {
      const auto& life = lives_[asker.rollout];
      const auto* const began = std::get_if<Episode::Began>(&event);
      const bool is_here = life && life->episode.key() == asker.key;
      if (life && (began != nullptr ? is_here : life->number == asker.life))
        step(asker.rollout, event);
      else if (began != nullptr)
        sandboxes_.erase(began->sandbox);
    });
  }

  // ---- The shell of a rollout ----

  void step(int rollout, const Episode::Event& event) {
    auto& life = lives_[rollout];
    if (!life) return;
    const Waiting before = life->episode.waiting();
    const auto actions = life->episode.step(event, now_);
    const bool has_moved_on = life->episode.waiting() != before;
    if (std::holds_alternative<Episode::Called>(event) && has_moved_on) life->answered.insert(life->called);
    // Where its release was lost on the way, a server gives the same sandbox again.
    if (const auto* began = std::get_if<Episode::Began>(&event); began != nullptr && has_moved_on)
      life->released.erase(began->sandbox);
    for (const auto& action : actions) {
      ASSERT_TRUE(life) << "there is something after the end";
      std::visit([&](const auto& which) { carry_out(rollout, *life, which); }, action);
    }
  }
  void sample(int rollout) {
    auto& life = lives_[rollout];
    if (!life || life->episode.waiting() != Waiting::kTokens) return;
    step(rollout, Episode::Sampled{7, -1, version_});
    if (--life->left_to_sample > 0) return;
    step(rollout,
         Episode::TurnEnded{random_.chance(0.25) ? Said{.text = "an answer"} : a_call(), random_.chance(0.05)});
  }
  Said a_call() { return {.text = std::to_string(++last_said_), .calls = {{.call = {"look", {}}}}}; }
  void carry_out(int rollout, Life& life, const Episode::Acquire& acquire) {
    std::optional<int> server = acquire.server;
    if (!server) {
      if (random_.chance(0.95)) server = static_cast<int>(random_.below(kServers));
      step(rollout, Episode::Asked{acquire.ask, server});
    }
    const Asker asker{rollout, life.number, life.episode.key()};
    if (server) send([=, this, ask = acquire.ask] { serve_acquire(asker, ask, *server); });
  }
  void carry_out(int rollout, Life& life, const Episode::Call& call) {
    ASSERT_FALSE(life.answered.contains(call.turn)) << "a turn that was answered is run again";
    ASSERT_FALSE(life.released.contains(call.sandbox));
    ASSERT_EQ(life.episode.server(), call.server);
    life.called = call.turn;
    send([=, this, asker = Asker{rollout, life.number, life.episode.key()}] { serve_call(asker, call); });
  }
  void carry_out(int rollout, Life& life, const Episode::Score& score) {
    ASSERT_FALSE(life.released.contains(score.sandbox));
    send([=, this, asker = Asker{rollout, life.number, life.episode.key()}] { serve_score(asker, score); });
  }
  void carry_out(int, Life& life, const Episode::Release& release) {
    life.released.insert(release.sandbox);
    send([this, release] { sandboxes_.erase(release.sandbox); });
  }
  void carry_out(int rollout, Life& life, const Episode::Open&) {
    life.left_to_sample = 1 + static_cast<int>(random_.below(10));
    if (random_.chance(0.02)) return step(rollout, Episode::TurnRefused{Status::invalid("no such token")});
    step(rollout, Episode::TurnOpened{{1, 2, 3}});
  }
  void carry_out(int rollout, Life& life, const Episode::Continue&) {
    life.left_to_sample = 1 + static_cast<int>(random_.below(10));
    if (random_.chance(0.05)) return step(rollout, Episode::TurnRefused{Status::exhausted("full")});
    step(rollout, Episode::TurnOpened{.tokens = {4}, .asks_for_summary = random_.chance(0.2)});
  }
  void carry_out(int rollout, Life& life, const Episode::Resume&) {
    life.left_to_sample = 1 + static_cast<int>(random_.below(10));
    if (random_.chance(0.05)) step(rollout, Episode::TurnRefused{Status::exhausted("full")});
  }
  void carry_out(int, Life&, const Episode::EndSampling&) {}
  void carry_out(int rollout, Life& life, const Episode::SendTrajectory&) {
    send([this, rollout, key = life.episode.key()] {
      stored_.insert(key);
      tell(rollout, key, Episode::Stored{key});
    });
  }
  void carry_out(int rollout, Life&, const Episode::SendCommit& send_commit) {
    const Commit& commit = send_commit.commit;
    ASSERT_EQ(is_of_policy(commit.outcome), commit.reward.has_value());
    ASSERT_TRUE(!commit.reward || stored_.contains(commit.key)) << "nobody has its trajectory on disk";
    send([this, rollout, commit] { on_commit(rollout, commit); });
  }
  void carry_out(int rollout, Life&, const Episode::HandOver& to) {
    if (random_.chance(0.1)) return step(rollout, Episode::NotHandedOver{});
    send([this, other = 1 - rollout, handover = to.handover] {
      if (!lives_[other]) lives_[other].emplace(handover, ++last_life_, now_);
    });
  }
  void carry_out(int rollout, Life& life, const Episode::SendClaim&) {
    send([this, rollout, key = life.episode.key(), claims = life.episode.lease().claims] {
      on_claim(rollout, key, claims);
    });
  }
  void carry_out(int, Life&, const Episode::Fork&) {}
  void carry_out(int, Life&, const Episode::EndTrunk&) {}
  void carry_out(int, Life&, const Episode::Note&) {}
  void carry_out(int rollout, Life& life, const Episode::Over&) {
    ASSERT_TRUE(life.episode.is_over());
    lives_[rollout].reset();
  }

  // ---- Environment servers ----

  void serve_acquire(const Asker& asker, uint64_t ask, int server) {
    if (lost_.contains(server)) return;
    if (random_.chance(0.2)) {
      const Status why = random_.chance(0.8) ? Status::exhausted("full") : Status::invalid("no such task");
      return answer(asker, Episode::Refused{ask, why, random_.chance(0.5)});
    }
    uint64_t& sandbox = leases_[{server, lives_of_servers_[server], asker.rollout, asker.key}];
    if (!sandboxes_.contains(sandbox)) {
      sandbox = ++last_sandbox_;
      sandboxes_[sandbox] = {.server = server};
    }
    answer(asker, Episode::Began{.server = server, .sandbox = sandbox, .opening = {}, .max_turns = kTurns});
  }
  void serve_call(const Asker& asker, const Episode::Call& call) {
    if (lost_.contains(call.server)) return;
    const auto found = sandboxes_.find(call.sandbox);
    if (found == sandboxes_.end()) return answer(asker, Episode::Refused{call.ask, Status::not_found("no such lease")});
    Sandbox& sandbox = found->second;
    ASSERT_EQ(sandbox.server, call.server);
    ASSERT_LE(call.turn, sandbox.answered + 1) << "a turn was left out";
    if (sandbox.is_graded && call.turn > sandbox.answered)
      return answer(asker, Episode::Refused{call.ask, Status::not_found("the episode is over")});
    sandbox.answered = std::max(sandbox.answered, call.turn);
    const uint64_t said = std::hash<std::string>()(call.said.text);
    ASSERT_EQ(sandbox.asked.emplace(call.turn, said).first->second, said) << "a turn is played with other calls";
    // The same turn has the same answer.
    const uint64_t drawn = derive_seed(call.sandbox, {call.turn});
    answer(asker, Episode::Called{.ask = call.ask,
                                  .is_over = drawn % 7 == 0,
                                  .results = std::vector<std::string>(call.said.calls.size(), "done"),
                                  .instruction = {}});
  }
  void serve_score(const Asker& asker, const Episode::Score& score) {
    if (lost_.contains(score.server)) return;
    const auto found = sandboxes_.find(score.sandbox);
    if (found == sandboxes_.end())
      return answer(asker, Episode::Refused{score.ask, Status::not_found("no such lease")});
    found->second.is_graded = true;
    answer(asker, Episode::Scored{.ask = score.ask, .reward = 1, .terms = {}});
  }
  // It is started again, falls silent, or is lost for a while.
  void end_server(int server) {
    const auto tell_all = [&](const Episode::Event& event) {
      for (int rollout = 0; rollout < kRollouts; ++rollout) {
        if (lives_[rollout]) tell(rollout, lives_[rollout]->episode.key(), event);
      }
    };
    if (random_.chance(0.3)) return tell_all(Episode::ServerSilent{server});
    ++lives_of_servers_[server];
    std::erase_if(sandboxes_, [&](const auto& entry) { return entry.second.server == server; });
    if (random_.chance(0.5)) return tell_all(Episode::ServerRestarted{server});
    lost_.insert(server);
    coming_.emplace(now_ + 20s, [this, server] { lost_.erase(server); });
  }

  // ---- The coordinator ----

  void grant() {
    if (++attempt_ > kMostAttempts) {
      is_done_ = true;
      return;
    }
    owner_ = static_cast<int>(random_.below(kRollouts));
    claims_ = 0;
    deadline_ = now_ + 300s;
    send([this, rollout = owner_, granted = key()] {
      if (const auto& life = lives_[rollout]) {
        if (life->episode.key() >= granted) return;
        step(rollout, Episode::Revoked{life->episode.key()});
      }
      lives_[rollout].emplace(LeaseTerms{.key = granted, .min_version = 1, .max_version = 100}, ++last_life_, now_);
    });
  }
  void expire() {
    tell(owner_, key(), Episode::Revoked{key()});
    grant();
  }
  void steal() { tell(owner_, key(), Episode::Stolen{"the other"}); }
  void on_claim(int rollout, const EpisodeKey& claimed, uint32_t claims) {
    if (is_done_ || claimed != key()) return tell(rollout, claimed, Episode::Revoked{claimed});
    if (owner_ == rollout && claims_ == claims + 1) return tell(rollout, claimed, Episode::Ours{claimed, claims_});
    if (claims_ != claims) return tell(rollout, claimed, Episode::Gone{claimed, claims_});
    tell(rollout, claimed, Episode::Ours{claimed, ++claims_});
    if (owner_ != rollout) tell(owner_, claimed, Episode::Gone{claimed, claims_});
    was_claimed_ = was_claimed_ || owner_ != rollout;
    owner_ = rollout;
  }
  void on_commit(int rollout, const Commit& commit) {
    tell(rollout, commit.key, Episode::Committed{commit.key});
    if (is_done_ || commit.key != key() || owner_ != rollout) return;
    if (!commit.reward) return grant();
    is_done_ = is_trained_ = true;
  }

  Random random_;
  double loses_ = 0, steals_ = 0, deaths_ = 0;
  bool is_calm_ = false;
  Time now_ = Time{} + 1000s;
  uint64_t version_ = 0;
  std::multimap<Time, std::function<void()>> coming_;
  std::array<std::optional<Life>, kRollouts> lives_;

  std::map<uint64_t, Sandbox> sandboxes_;
  std::map<std::tuple<int, int, int, EpisodeKey>, uint64_t> leases_;
  std::map<int, int> lives_of_servers_;
  std::set<int> lost_;
  uint64_t last_sandbox_ = 0, last_life_ = 0, last_said_ = 0;

  std::set<EpisodeKey> stored_;
  uint32_t attempt_ = 0, claims_ = 0;
  int owner_ = 0;
  Time deadline_{};
  bool is_done_ = false, is_trained_ = false, was_claimed_ = false;
};

TEST(EpisodeUnderChance, every_episode_ends_once_and_never_repeats_what_was_answered_whatever_becomes_of_messages) {
  int trained = 0, dropped = 0, again = 0, claimed = 0;
  for (uint64_t seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomWorld world(seed);
    ASSERT_NO_FATAL_FAILURE(world.play());
    ++(world.is_trained() ? trained : dropped);
    again += world.attempts() > 1 ? 1 : 0;
    claimed += world.was_claimed() ? 1 : 0;
  }
  EXPECT_GT(trained, 100);
  EXPECT_GT(dropped, 0);
  EXPECT_GT(again, 50);
  EXPECT_GT(claimed, 20);
}

}  // namespace
}  // namespace tandem::rollout
