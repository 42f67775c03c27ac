// Roles without a coordinator, as the models of a server are: each fails alone.
#include <gmock/gmock.h>
#include <signal.h>

#include <deque>
#include <map>

#include "base/exit_code.h"
#include "run/supervision.h"

namespace tandem::run {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class IndependentRoles : public testing::Test {
 protected:
  static constexpr wire::Peer kA{wire::Role::kRollout, 0}, kB{wire::Role::kRollout, 1};

  IndependentRoles() { pass(200ms); }
  void apply(const Supervision::Event& event) {
    std::deque<Supervision::Event> events = {event};
    for (; !events.empty(); events.pop_front()) {
      for (const auto& action : machine_.step(events.front(), now_)) {
        if (const auto* start = std::get_if<Supervision::Start>(&action)) {
          ++starts_[start->peer];
          if (start_error_.empty())
            events.push_back(Supervision::Started{start->peer, ++last_process_, ++epoch_, 100});
          else
            events.push_back(Supervision::StartFailed{start->peer, start_error_});
        } else if (const auto* note = std::get_if<Supervision::Note>(&action)) {
          notes_.push_back(note->text);
        } else if (const auto* failed = std::get_if<Supervision::RoleFailed>(&action)) {
          failed_.insert_or_assign(failed->peer, failed->why);
        } else if (const auto* silent = std::get_if<Supervision::EndSilent>(&action)) {
          silent_.push_back(silent->peer);
        } else if (const auto* ask = std::get_if<Supervision::Ask>(&action)) {
          asked_.push_back(ask->process);
        } else if (const auto* stop = std::get_if<Supervision::Stop>(&action)) {
          stopped_ = stop->processes;
        } else if (std::holds_alternative<Supervision::Finish>(action)) {
          is_finished_ = true;
        }
      }
    }
  }
  void pass(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += 100ms) apply(Supervision::Tick{});
  }
  const Supervision::Role& role(const wire::Peer& peer) const {
    return machine_.roles()[static_cast<size_t>(peer.rank)];
  }
  void exits(const wire::Peer& peer, int code, int signal = 0) {
    apply(Supervision::Exited{.ending = {.process = role(peer).process, .code = code, .signal = signal}});
  }
  void hear(std::map<wire::Peer, double> silent) {
    Supervision::Heard heard;
    for (const auto& [peer, seconds] : silent) heard.roles[peer] = {role(peer).epoch, seconds, "answering"};
    apply(heard);
  }

  Supervision machine_{Supervision::Plan{.roles = {kA, kB},
                                         .max_restarts = 2,
                                         .silence_seconds = 8,
                                         .start_seconds = 20,
                                         .independent = true,
                                         .restart_window_seconds = 60,
                                         .end_seconds = 3,
                                         .labels = {{kA, "the model \"a\""}}}};
  Time now_ = Time{} + 1000s;
  std::map<wire::Peer, int> starts_;
  int64_t last_process_ = 0;
  uint64_t epoch_ = 0;
  std::string start_error_;
  std::vector<std::string> notes_;
  std::map<wire::Peer, std::string> failed_;
  std::vector<wire::Peer> silent_;
  std::vector<int64_t> asked_, stopped_;
  bool is_finished_ = false;
};

TEST_F(IndependentRoles, one_that_dies_is_called_by_its_label_and_started_again) {
  exits(kA, 0, SIGKILL);
  EXPECT_THAT(notes_, ElementsAre("the model \"a\" was ended by signal 9; starting it again"));
  pass(1s);
  EXPECT_TRUE(role(kA).is_running());
  EXPECT_EQ(role(kA).restarts, 1);
  EXPECT_EQ(role(kA).last_cause, "was ended by signal 9");
}

TEST_F(IndependentRoles, a_clean_end_that_nobody_asked_for_is_a_death_too) {
  exits(kB, 0);
  pass(1s);
  EXPECT_TRUE(role(kB).is_running());
  EXPECT_EQ(role(kB).restarts, 1);
}

TEST_F(IndependentRoles, one_that_keeps_dying_fails_alone_and_is_tried_again_when_it_is_revived) {
  for (int i = 0; i < 3; ++i) {
    exits(kA, kUsage);
    pass(6s);
  }
  EXPECT_THAT(failed_[kA], HasSubstr("has been started again 2 times"));
  EXPECT_EQ(starts_[kA], 3);
  EXPECT_EQ(role(kA).shown_state(), "failed");
  EXPECT_FALSE(is_finished_);
  pass(200s);
  EXPECT_EQ(starts_[kA], 3);
  exits(kB, 0, SIGSEGV);
  pass(1s);
  EXPECT_TRUE(role(kB).is_running()) << "the other is looked after as before";
  apply(Supervision::Revived{kB});
  EXPECT_EQ(starts_[kB], 2) << "it has not failed";
  apply(Supervision::Revived{kA});
  EXPECT_TRUE(role(kA).is_running());
  exits(kA, kUsage);
  pass(6s);
  EXPECT_TRUE(role(kA).is_running()) << "its restarts are counted anew";
}

TEST_F(IndependentRoles, restarts_of_long_ago_count_no_more) {
  for (int i = 0; i < 6; ++i) {
    exits(kA, 1);
    pass(40s);
    EXPECT_TRUE(role(kA).is_running());
  }
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_EQ(role(kA).restarts, 6);
}

TEST_F(IndependentRoles, one_that_cannot_be_started_is_tried_again_too) {
  start_error_ = "fork: no memory";
  exits(kA, 1);
  pass(30s);
  EXPECT_THAT(failed_[kA], HasSubstr("could not be started: fork: no memory"));
  EXPECT_TRUE(role(kB).is_running());
  EXPECT_FALSE(is_finished_);
}

TEST_F(IndependentRoles, a_silent_one_is_ended_and_one_that_loads_has_longer) {
  for (int i = 0; i < 100; ++i) {
    hear({{kA, i < 50 ? 0 : 0.1 * (i - 50)}});
    pass(100ms);
  }
  EXPECT_THAT(silent_, IsEmpty()) << "5 s, and 10 s of loading";
  for (int i = 0; i < 50; ++i) {
    hear({{kA, 5 + 0.1 * i}});
    pass(100ms);
  }
  EXPECT_THAT(silent_, ElementsAre(kA));
  for (int i = 0; i < 100; ++i) {
    hear({});
    pass(100ms);
  }
  EXPECT_THAT(silent_, ElementsAre(kA, kB));
}

TEST_F(IndependentRoles, an_interrupt_asks_all_and_ends_at_once_those_that_take_too_long) {
  const int64_t a = role(kA).process, b = role(kB).process;
  apply(Supervision::Interrupted{});
  EXPECT_THAT(asked_, ElementsAre(a, b));
  exits(kA, 0);
  pass(1s);
  EXPECT_FALSE(is_finished_);
  pass(3s);
  EXPECT_TRUE(is_finished_);
  EXPECT_THAT(stopped_, ElementsAre(b));
  EXPECT_EQ(starts_[kA], 1) << "nothing is started again";
}

}  // namespace
}  // namespace tandem::run
