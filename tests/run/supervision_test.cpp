// The decisions about the roles of a run, in simulated time: deaths, silence, interrupts, events twice or late.
#include "run/supervision.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace tandem::run {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

// A run whose processes do what the test says. Every start succeeds unless it says otherwise.
class SupervisionTest : public testing::Test {
 protected:
  using End = Supervision::End;
  static constexpr wire::Peer kCoordinator{wire::Role::kCoordinator, 0};
  static constexpr wire::Peer kTrainer{wire::Role::kTrainer, 0};
  static constexpr wire::Peer kWorker{wire::Role::kRollout, 0};

  SupervisionTest() { tick(); }

  void apply(const Supervision::Event& event) {
    std::deque<Supervision::Event> events = {event};
    for (; !events.empty(); events.pop_front()) {
      for (const auto& action : machine_.step(events.front(), now_)) {
        if (const auto* start = std::get_if<Supervision::Start>(&action)) {
          starts_.push_back(start->peer);
          if (full_.contains(start->peer))
            events.push_back(Supervision::NoRoom{start->peer, "waiting for a host with room"});
          else if (start_error_.empty())
            events.push_back(Supervision::Started{start->peer, ++last_process_, ++epochs_[start->peer], 100});
          else
            events.push_back(Supervision::StartFailed{start->peer, start_error_});
        } else if (const auto* note = std::get_if<Supervision::Note>(&action)) {
          notes_.push_back(note->text);
        } else if (const auto* silent = std::get_if<Supervision::EndSilent>(&action)) {
          silent_.push_back(*silent);
        } else if (const auto* ask = std::get_if<Supervision::Ask>(&action)) {
          asked_.push_back(ask->process);
        } else if (const auto* stop = std::get_if<Supervision::Stop>(&action)) {
          stopped_ = stop->processes;
        } else if (const auto* finish = std::get_if<Supervision::Finish>(&action)) {
          EXPECT_FALSE(finish_) << "finished twice";
          finish_ = *finish;
        } else if (std::holds_alternative<Supervision::AskFinish>(action)) {
          ++finishes_asked_;
        }
      }
    }
  }
  void tick() { apply(Supervision::Tick{}); }
  void pass(Duration time) {
    for (const Time end = now_ + time; now_ < end;) {
      now_ += 100ms;
      tick();
    }
  }
  const Supervision::Role& role(const wire::Peer& peer) const {
    for (const auto& role : machine_.roles()) {
      if (role.peer == peer) return role;
    }
    throw std::out_of_range(to_string(peer));
  }
  void exits(const wire::Peer& peer, int code, int signal = 0) {
    apply(Supervision::Exited{.ending = {.process = role(peer).process, .code = code, .signal = signal}});
  }
  void coordinator_leaves(bool plan_done) {
    apply(Supervision::Exited{.ending = {.process = role(kCoordinator).process}, .plan_done = plan_done});
  }
  // All have introduced themselves; the worker has been silent for so long.
  Supervision::Heard report(double worker_silent = 0) const {
    return {{{kTrainer, {role(kTrainer).epoch, 0, "training step 3"}},
             {kWorker, {role(kWorker).epoch, worker_silent, "generating"}}}};
  }
  // Passes time in which the coordinator reports.
  void pass_informed(Duration time, double worker_silent = 0) {
    for (const Time end = now_ + time; now_ < end;) {
      apply(report(worker_silent));
      pass(1s);
    }
  }
  size_t starts_of(const wire::Peer& peer) const { return std::count(starts_.begin(), starts_.end(), peer); }

  Supervision machine_{Supervision::Plan{
      .roles = {kCoordinator, kTrainer, kWorker}, .max_restarts = 3, .silence_seconds = 8, .start_seconds = 20}};
  Time now_ = Time{} + 1000s;
  std::map<wire::Peer, uint64_t> epochs_;
  int64_t last_process_ = 0;
  std::string start_error_;
  std::set<wire::Peer> full_;  // roles that no machine can take
  std::vector<wire::Peer> starts_;
  std::vector<std::string> notes_;
  std::vector<Supervision::EndSilent> silent_;
  std::vector<int64_t> asked_, stopped_;
  int finishes_asked_ = 0;
  std::optional<Supervision::Finish> finish_;
};

TEST_F(SupervisionTest, a_role_that_no_machine_can_take_waits_and_the_run_goes_on_without_it) {
  full_ = {kWorker};
  apply(Supervision::Exited{.ending = {.process = role(kWorker).process, .how = "was lost with host far:1"}});
  EXPECT_THAT(notes_, ElementsAre("rollout-0 was lost with host far:1; starting it again"));
  pass_informed(30s);
  EXPECT_FALSE(finish_);
  EXPECT_FALSE(role(kWorker).is_running());
  EXPECT_EQ(role(kWorker).waiting_for, "waiting for a host with room");
  EXPECT_EQ(role(kWorker).restarts, 1) << "to wait is no failure";
  const size_t asked = starts_of(kWorker);
  EXPECT_GE(asked, 20u);
  EXPECT_LE(asked, 40u);
  exits(kTrainer, 0, SIGKILL);
  pass(1s);
  EXPECT_TRUE(role(kTrainer).is_running()) << "others are started meanwhile";
  full_.clear();
  pass(2s);
  EXPECT_TRUE(role(kWorker).is_running());
}

TEST_F(SupervisionTest, starts_the_roles_in_their_order_and_says_how_the_run_is) {
  EXPECT_THAT(starts_, ElementsAre(kCoordinator, kTrainer, kWorker));
  EXPECT_EQ(machine_.state(), "starting");
  apply(report());
  tick();
  EXPECT_EQ(machine_.state(), "running");
  EXPECT_EQ(role(kTrainer).waiting_for, "training step 3");
  EXPECT_EQ(role(kTrainer).shown_state(), "ok");
}

TEST_F(SupervisionTest, a_coordinator_that_was_asked_to_end_by_somebody_else_is_named) {
  apply(report());
  coordinator_leaves(false);
  EXPECT_THAT(notes_, ElementsAre(testing::AllOf(testing::HasSubstr("coordinator-0 (pid 1) was asked to end"),
                                                 testing::HasSubstr("--resume"))));
}

TEST_F(SupervisionTest, a_run_whose_directory_is_lost_ends_at_once) {
  apply(report());
  apply(Supervision::DirectoryLost{"moved"});
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kFailed);
  EXPECT_EQ(finish_->failure, "moved");
  EXPECT_THAT(stopped_, ElementsAre(1, 2, 3));
}

TEST_F(SupervisionTest, a_run_that_its_coordinator_gives_up_ends_at_once_with_its_words) {
  apply(report());
  apply(Supervision::GivenUp{"none of the last 65 episodes could be scored"});
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kFailed);
  EXPECT_EQ(finish_->failure, "none of the last 65 episodes could be scored");
  EXPECT_THAT(stopped_, ElementsAre(1, 2, 3));
}

TEST_F(SupervisionTest, a_coordinator_that_leaves_as_it_should_needs_no_words) {
  apply(report());
  coordinator_leaves(true);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(SupervisionTest, a_role_that_dies_is_started_again_after_a_pause_that_grows_with_quick_deaths) {
  exits(kTrainer, 0, SIGKILL);
  EXPECT_THAT(notes_, ElementsAre("trainer-0 was ended by signal 9; starting it again"));
  EXPECT_EQ(role(kTrainer).shown_state(), "restarting");
  tick();
  EXPECT_EQ(starts_of(kTrainer), 2u) << "the first time at once";
  exits(kTrainer, 1);
  EXPECT_EQ(notes_.back(), "trainer-0 ended with code 1; starting it again");
  pass(900ms);
  EXPECT_EQ(starts_of(kTrainer), 2u);
  pass(100ms);
  EXPECT_EQ(starts_of(kTrainer), 3u);
  pass_informed(11s);
  exits(kTrainer, 1);
  tick();
  EXPECT_EQ(starts_of(kTrainer), 4u) << "it lived long enough";
  EXPECT_EQ(role(kTrainer).restarts, 3);
  EXPECT_FALSE(finish_);
}

TEST_F(SupervisionTest, a_role_that_dies_too_often_fails_the_run_with_its_last_words) {
  for (int death = 0; death < 4; ++death) {
    exits(kTrainer, 1);
    pass(5s);
  }
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kFailed);
  EXPECT_EQ(finish_->failure, "trainer-0 ended with code 1, and has been started again 3 times:\n");
  EXPECT_EQ(finish_->quoted, kTrainer);
  EXPECT_THAT(stopped_, testing::SizeIs(2));
  EXPECT_EQ(machine_.state(), "failed");
  EXPECT_EQ(role(kWorker).shown_state(), "dead");
  pass(10s);
  EXPECT_EQ(starts_of(kTrainer), 4u);
}

TEST_F(SupervisionTest, a_role_that_cannot_work_here_fails_the_run_at_once) {
  exits(kWorker, 3);
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->failure, "rollout-0 cannot work as things are:\n");
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(SupervisionTest, a_start_that_fails_ends_the_run_and_nothing_is_started_after_it) {
  start_error_ = "fork: no memory";
  exits(kTrainer, 1);
  exits(kWorker, 1);
  tick();
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->failure, "fork: no memory");
  EXPECT_EQ(starts_of(kTrainer), 2u);
  EXPECT_EQ(starts_of(kWorker), 1u);
  EXPECT_THAT(stopped_, ElementsAre(1));
}

TEST_F(SupervisionTest, a_silent_role_is_named_and_ended_once_and_started_again) {
  pass_informed(3s);
  pass_informed(2s, 5);
  EXPECT_EQ(role(kWorker).shown_state(), "stalled");
  EXPECT_THAT(silent_, IsEmpty());
  pass_informed(5s, 8.5);
  ASSERT_EQ(silent_.size(), 1u);
  EXPECT_EQ(silent_[0].peer, kWorker);
  EXPECT_EQ(silent_[0].process, role(kWorker).process);
  EXPECT_EQ(silent_[0].silent_seconds, 8.5);
  EXPECT_EQ(silent_[0].doing, "generating");
  auto earlier_life = report(12);
  exits(kWorker, 0, SIGKILL);
  tick();
  EXPECT_EQ(starts_of(kWorker), 2u);
  apply(earlier_life);
  tick();
  EXPECT_EQ(silent_.size(), 1u) << "what is said of an earlier life";
  EXPECT_EQ(role(kWorker).waiting_for, "starting");
}

TEST_F(SupervisionTest, a_role_that_does_not_introduce_itself_has_the_time_of_a_start) {
  for (int second = 0; second < 19; ++second) {
    apply(Supervision::Heard{});
    pass(1s);
  }
  EXPECT_THAT(silent_, IsEmpty());
  apply(Supervision::Heard{});
  pass(1s);
  ASSERT_EQ(silent_.size(), 2u);
  EXPECT_EQ(silent_[1].doing, "starting");
}

TEST_F(SupervisionTest, a_silent_coordinator_is_ended_and_says_nothing_of_the_others) {
  pass_informed(3s, 7.9);
  pass(20s);
  ASSERT_EQ(silent_.size(), 1u);
  EXPECT_EQ(silent_[0].peer, kCoordinator);
  EXPECT_EQ(silent_[0].doing, "keeping the books");
}

TEST_F(SupervisionTest, the_end_of_the_plan_asks_the_others_to_go_and_waits_for_them) {
  apply(report());
  exits(kTrainer, 0);
  coordinator_leaves(true);
  EXPECT_THAT(asked_, ElementsAre(role(kWorker).process));
  EXPECT_EQ(machine_.state(), "stopping");
  pass(5s);
  EXPECT_FALSE(finish_);
  EXPECT_EQ(starts_of(kTrainer), 1u);
  exits(kWorker, 1);
  tick();
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kDone);
  EXPECT_EQ(finish_->failure, "");
  EXPECT_EQ(machine_.state(), "done");
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(SupervisionTest, roles_that_stay_after_the_coordinator_are_stopped) {
  coordinator_leaves(true);
  pass(10s);
  EXPECT_FALSE(finish_);
  pass(100ms);
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kDone);
  EXPECT_THAT(stopped_, ElementsAre(2, 3));
}

TEST_F(SupervisionTest, a_role_that_somebody_else_stopped_is_started_again_and_not_counted) {
  exits(kWorker, 0);
  EXPECT_EQ(role(kWorker).shown_state(), "ok");
  pass(1900ms);
  EXPECT_EQ(starts_of(kWorker), 1u);
  pass(100ms);
  EXPECT_EQ(starts_of(kWorker), 2u);
  EXPECT_EQ(role(kWorker).restarts, 0);
}

TEST_F(SupervisionTest, a_role_that_always_ends_with_code_0_while_the_run_goes_on_ends_the_run) {
  for (int end = 1; end <= 3; ++end) {
    exits(kTrainer, 0);
    EXPECT_FALSE(finish_) << end;
    pass_informed(5s);
    ASSERT_TRUE(role(kTrainer).is_running()) << end;
  }
  exits(kTrainer, 0);
  pass(1s);
  ASSERT_TRUE(finish_);
  EXPECT_THAT(finish_->failure, testing::HasSubstr("trainer-0 has ended 4 times with code 0"));
}

TEST_F(SupervisionTest, an_interrupt_asks_for_a_checkpoint_until_the_run_has_ended_cleanly) {
  pass_informed(3s);
  apply(Supervision::Interrupted{});
  EXPECT_THAT(notes_, ElementsAre("stopping: waiting for a checkpoint (interrupt again to end at once)"));
  EXPECT_EQ(machine_.state(), "stopping");
  tick();
  EXPECT_EQ(finishes_asked_, 1);
  pass_informed(3s);
  EXPECT_EQ(finishes_asked_, 4) << "one may be lost";
  coordinator_leaves(false);
  exits(kTrainer, 0);
  exits(kWorker, 0);
  tick();
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kInterrupted);
  EXPECT_EQ(machine_.state(), "stopping") << "a run with steps to go is not done";
  EXPECT_EQ(machine_.end(), "interrupted");
}

TEST_F(SupervisionTest, a_second_interrupt_ends_the_run_at_once) {
  apply(Supervision::Interrupted{});
  apply(Supervision::Interrupted{});
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kFailed);
  EXPECT_EQ(finish_->failure, "interrupted twice: ended at once");
  EXPECT_THAT(stopped_, ElementsAre(1, 2, 3));
}

TEST_F(SupervisionTest, a_scheduler_that_asks_again_cuts_no_checkpoint_short_and_a_person_does) {
  using By = Supervision::Interrupted::By;
  apply(Supervision::Interrupted{By::kScheduler});
  pass_informed(3s);
  apply(Supervision::Interrupted{By::kScheduler});
  apply(Supervision::Interrupted{By::kScheduler});
  pass_informed(3s);
  EXPECT_FALSE(finish_);
  EXPECT_THAT(stopped_, IsEmpty());
  EXPECT_EQ(machine_.state(), "stopping");
  apply(Supervision::Interrupted{By::kPerson});
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->failure, "interrupted twice: ended at once");
}

TEST_F(SupervisionTest, signals_of_a_scheduler_do_not_move_the_deadline_of_a_checkpoint) {
  using By = Supervision::Interrupted::By;
  apply(Supervision::Interrupted{By::kScheduler});
  pass_informed(100s);
  apply(Supervision::Interrupted{By::kScheduler});
  pass_informed(50s);
  EXPECT_FALSE(finish_);
  pass_informed(1s);
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->end, End::kFailed);
}

TEST_F(SupervisionTest, a_checkpoint_that_does_not_come_fails_the_run) {
  apply(Supervision::Interrupted{});
  pass_informed(150s);
  EXPECT_FALSE(finish_);
  pass_informed(1s);
  ASSERT_TRUE(finish_);
  EXPECT_EQ(finish_->failure, "the run did not reach a checkpoint within 150 s of being asked to stop");
}

TEST_F(SupervisionTest, what_is_said_twice_or_too_late_changes_nothing) {
  const Supervision::Started first{kTrainer, role(kTrainer).process, role(kTrainer).epoch, 100};
  apply(first);
  const Supervision::Exited exit{.ending = {.process = first.process, .code = 1}};
  apply(exit);
  apply(exit);
  EXPECT_EQ(role(kTrainer).restarts, 1);
  const auto starting = machine_.step(Supervision::Tick{}, now_);
  EXPECT_TRUE(std::holds_alternative<Supervision::Start>(starting.back()));
  EXPECT_THAT(machine_.step(first, now_), IsEmpty());
  EXPECT_FALSE(role(kTrainer).is_running()) << "that was its earlier life";
  apply(Supervision::Started{kTrainer, 77, 2, 100});
  apply(exit);
  EXPECT_EQ(role(kTrainer).process, 77);
}

TEST_F(SupervisionTest, a_process_whose_start_was_under_way_at_the_end_is_stopped) {
  exits(kTrainer, 1);
  (void)machine_.step(Supervision::Tick{}, now_);
  apply(Supervision::Interrupted{});
  apply(Supervision::Interrupted{});
  EXPECT_THAT(stopped_, ElementsAre(1, 3));
  apply(Supervision::Started{kTrainer, 77, 2, 100});
  EXPECT_THAT(stopped_, ElementsAre(77));
  EXPECT_THAT(machine_.processes(), IsEmpty());
}

}  // namespace
}  // namespace tandem::run
