#include "rollout/agent/agent_loop.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

envs::ParsedCall call_of(const std::string& name, const std::string& file = "a.txt") {
  return {{name, {{"target_file", file}}}, ""};
}
TurnTaken calls(std::vector<envs::ParsedCall> of) { return {std::move(of), false}; }
CallsReturned results(const std::vector<std::string>& outputs) {
  CallsReturned returned;
  for (const auto& output : outputs) returned.outcomes.push_back(envs::ToolOutcome::done(output));
  return returned;
}

// What the actions say: "turn 2 after 1", "run 3", "stop", "over answered".
std::vector<std::string> words(const std::vector<AgentAction>& actions) {
  std::vector<std::string> said;
  for (const auto& action : actions) {
    if (const auto* turn = std::get_if<TakeTurn>(&action)) {
      said.push_back(fmt::format("turn {} after {}", turn->turn, turn->replies.size()));
    } else if (const auto* run = std::get_if<RunCalls>(&action)) {
      said.push_back(fmt::format("run {}", run->calls.size()));
    } else if (std::holds_alternative<StopWork>(action)) {
      said.emplace_back("stop");
    } else {
      said.push_back(fmt::format("over {}", to_string(std::get<AgentOver>(action).end)));
    }
  }
  return said;
}

class Loop : public testing::Test {
 protected:
  std::vector<std::string> step(const AgentEvent& event) { return words(loop_.step(event, now_)); }
  void use(const AgentLimits& limits) { loop_ = AgentLoop(limits); }

  AgentLoop loop_{AgentLimits{}};
  Time now_{};
};

TEST_F(Loop, a_message_without_calls_is_the_answer_and_nothing_follows_it) {
  EXPECT_THAT(step(AgentBegins{}), ElementsAre("turn 1 after 0"));
  EXPECT_THAT(step(calls({call_of("read_file"), call_of("grep")})), ElementsAre("run 2"));
  EXPECT_THAT(step(results({"a", "b"})), ElementsAre("turn 2 after 2"));
  EXPECT_THAT(step(calls({})), ElementsAre("over answered"));
  EXPECT_THAT(step(AgentInterrupted{}), IsEmpty());
  EXPECT_THAT(step(calls({call_of("grep")})), IsEmpty());
}

TEST_F(Loop, calls_of_a_message_that_was_cut_are_not_run) {
  step(AgentBegins{});
  EXPECT_THAT(step(TurnTaken{{call_of("write")}, true}), ElementsAre("over truncated"));
}

TEST_F(Loop, the_calls_of_the_last_turn_are_run_and_no_further_turn_begins) {
  use({.turns = 2});
  step(AgentBegins{});
  step(calls({call_of("read_file")}));
  step(results({"a"}));
  EXPECT_THAT(step(calls({call_of("write")})), ElementsAre("run 1"));
  EXPECT_THAT(step(results({"b"})), ElementsAre("over out_of_turns"));
}

TEST_F(Loop, where_a_change_is_the_end_the_first_turn_that_changes_files_is_the_last) {
  use({.turns = 2, .ends_on_change = true});
  step(AgentBegins{});
  step(calls({call_of("read_file")}));
  EXPECT_THAT(step(results({"a"})), ElementsAre("turn 2 after 1"));
  step(calls({call_of("grep"), call_of("write")}));
  auto returned = results({"a", "b"});
  returned.outcomes[1].changed_files = true;
  EXPECT_THAT(step(returned), ElementsAre("over changed"));
}

TEST_F(Loop, more_calls_than_allowed_are_answered_with_an_error) {
  use({.calls_of_turn = 2});
  step(AgentBegins{});
  const auto actions = loop_.step(calls({call_of("grep"), call_of("grep"), call_of("grep")}), now_);
  ASSERT_EQ(actions.size(), 1u);
  const auto& run = std::get<RunCalls>(actions[0]).calls;
  EXPECT_TRUE(run[1].error.empty());
  EXPECT_THAT(run[2].error, StartsWith("Error: a message may have 2 calls at most"));
}

TEST_F(Loop, the_same_calls_with_the_same_results_three_times_in_a_row_are_circles) {
  step(AgentBegins{});
  const auto round = [&](const std::string& file, const std::string& output) {
    EXPECT_THAT(step(calls({call_of("read_file", file)})), ElementsAre("run 1"));
    return step(results({output}));
  };
  round("a", "x");
  round("a", "x");
  EXPECT_THAT(round("a", "y"), ElementsAre("turn 4 after 1"));  // the file has changed: that is progress
  round("a", "y");
  EXPECT_THAT(round("b", "y"), ElementsAre("turn 6 after 1"));
  round("b", "y");
  EXPECT_THAT(round("b", "y"), ElementsAre("over in_circles"));
}

TEST_F(Loop, an_interrupt_ends_what_is_under_way_and_waits_for_its_end) {
  step(AgentBegins{});
  step(calls({call_of("run_terminal_cmd")}));
  EXPECT_THAT(step(AgentInterrupted{}), ElementsAre("stop"));
  EXPECT_THAT(step(AgentInterrupted{}), IsEmpty());
  EXPECT_THAT(step(WorkFailed{Status::cancelled("stopped")}), ElementsAre("over interrupted"));
}

TEST_F(Loop, an_interrupt_counts_also_where_the_work_ended_well_in_the_meantime) {
  step(AgentBegins{});
  step(AgentInterrupted{});
  EXPECT_THAT(step(calls({call_of("write")})), ElementsAre("over interrupted"));
}

TEST_F(Loop, when_the_time_is_over_work_is_ended_but_an_answer_in_the_last_moment_counts) {
  for (const bool answer : {false, true}) {
    use({.time = 60s});
    now_ = Time{};
    step(AgentBegins{});
    EXPECT_EQ(loop_.deadline(), Time{} + 60s);
    EXPECT_THAT(step(TimePassed{}), IsEmpty());
    now_ += 60s;
    if (answer) {
      EXPECT_THAT(step(calls({})), ElementsAre("over answered"));
    } else {
      EXPECT_THAT(step(TimePassed{}), ElementsAre("stop"));
      EXPECT_EQ(loop_.deadline(), std::nullopt);
      EXPECT_THAT(step(WorkFailed{Status::cancelled("stopped")}), ElementsAre("over out_of_time"));
    }
  }
}

TEST_F(Loop, a_failure_of_the_model_or_the_sandbox_is_told_with_its_words) {
  step(AgentBegins{});
  const auto actions = loop_.step(WorkFailed{Status::unavailable("no server")}, now_);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<AgentOver>(actions[0]).why, Status::unavailable("no server"));
}

TEST(LoopProperties, whatever_happens_work_is_one_at_a_time_and_the_end_comes_once_and_last) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    AgentLoop loop({.turns = static_cast<int>(1 + random.below(6)), .time = from_seconds(1 + random.below(40))});
    Time now{};
    bool working = false, over = false, stopped = false;
    AgentEvent event = AgentBegins{};
    for (int i = 0; i < 100 && !over; ++i) {
      for (const auto& action : loop.step(event, now)) {
        EXPECT_FALSE(over);
        if (std::holds_alternative<StopWork>(action)) {
          EXPECT_TRUE(working && !stopped);
          stopped = true;
        } else if (std::holds_alternative<AgentOver>(action)) {
          EXPECT_FALSE(working);
          over = true;
        } else {
          EXPECT_FALSE(working || stopped);
          working = true;
        }
      }
      now += from_seconds(random.uniform() * 3);
      const auto kind = random.below(5);
      if (kind == 0 && random.chance(0.1)) {
        event = AgentInterrupted{};
      } else if (kind == 1 || !working) {
        event = TimePassed{};
      } else {
        working = false;
        if (kind == 2) {
          event = calls({call_of("grep", std::to_string(random.below(2)))});
        } else if (kind == 3) {
          event = results({std::to_string(random.below(2))});
        } else {
          event = random.chance(0.5) ? AgentEvent(calls({})) : AgentEvent(WorkFailed{Status::unavailable("gone")});
        }
      }
    }
    EXPECT_TRUE(over) << seed;
  }
}

}  // namespace
}  // namespace tandem::rollout
