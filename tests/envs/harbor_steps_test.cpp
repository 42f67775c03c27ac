// Harbor's tasks of several steps: several instructions in one episode, each graded after its step.
#include <atomic>
#include <thread>

#include "envs/episodes/call_messages.h"
#include "envs/episodes/validate.h"
#include "envs/server/server.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class HarborSteps : public SandboxTest {
 protected:
  HarborSteps() {
    put_toml("");
    set_.put("t/environment/Dockerfile", "FROM debian\nWORKDIR /app\nENV WHO=me\n");
    set_.put("t/tests/lib.sh", "give() { echo $1 > /logs/verifier/reward.txt; }\n");
    set_.put("t/tests/test.sh", ". /tests/lib.sh\nif grep -q two b.txt; then give 1; else give 0; fi\n");
    set_.put("t/steps/first/instruction.md", "Write one into a.txt.\n");
    set_.put(
        "t/steps/first/tests/test.sh",
        ". /tests/lib.sh\nif grep -q one a.txt; then give 1; elif test -e a.txt; then give 0.5; else give 0; fi\n");
    set_.put("t/steps/first/solution/solve.sh", "echo one > a.txt\n");
    set_.put("t/steps/second/instruction.md", "Write two into b.txt.\n");
    set_.put("t/steps/second/workdir/hint.txt", "a hint\n");
    set_.put("t/steps/second/workdir/setup.sh", "cp hint.txt copied.txt && test ! -e broken\n");
    set_.put("t/steps/second/solution/solve.sh", "echo two > b.txt\n");
  }
  void put_toml(const std::string& before, const std::string& of_first = "") {
    set_.put("t/task.toml", before + "[verifier]\ntimeout_sec = 20\n[[steps]]\nname = \"first\"\n" + of_first +
                                "[steps.agent]\ntimeout_sec = 9\n[[steps]]\nname = \"second\"\n");
  }
  std::unique_ptr<Episode> open() {
    const auto task = only_task(set_.path / "t");
    EXPECT_TRUE(task.has_value()) << task.error().to_string();
    auto episode = Episode::open(*task, *backend_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    return std::move(*episode);
  }
  static std::string run(Episode& episode, const std::string& command) {
    return episode.call("run_terminal_cmd", {{"command", command}})->output;
  }
  static std::string next(Episode& episode) {
    const auto step = episode.next_step("done");
    EXPECT_TRUE(step.has_value()) << step.error().to_string();
    return step && *step ? **step : "the end";
  }
  std::string mistakes() {
    const auto task = only_task(set_.path / "t");
    return task ? "" : task.error().message();
  }
  Scratch set_;
};

TEST_F(HarborSteps, instructions_follow_each_other_in_one_sandbox_and_the_reward_is_the_mean) {
  const auto episode = open();
  EXPECT_THAT(episode->opening(ToolListing::kInMessages).messages.back().content, HasSubstr("Write one into a.txt."));
  EXPECT_EQ(run(*episode, "ls; cd /tmp; export KEPT=yes; echo 1 > /app/a.txt; sleep 1000 & echo $WHO"), "me\n");
  EXPECT_EQ(next(*episode), "Write two into b.txt.\n");
  EXPECT_EQ(run(*episode, "pwd; echo $KEPT; cat /app/a.txt /app/copied.txt; ls /app; ls /tests/ 2>&1; pgrep -c sleep"),
            "/tmp\nyes\n1\na hint\na.txt\ncopied.txt\nhint.txt\nsetup.sh\n"
            "0\n[exit code 1]\n");
  run(*episode, "echo two > /app/b.txt");
  EXPECT_EQ(next(*episode), "the end");
  const auto grade = episode->score("done");
  ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
  EXPECT_EQ(grade->reward, 0.75);
  EXPECT_THAT(grade->terms, ElementsAre(Pair("step first", 0.5), Pair("step second", 1), Pair("unread_calls", 0)));
}

TEST_F(HarborSteps, a_reward_below_what_a_step_asks_for_ends_the_episode_with_it) {
  put_toml("", "min_reward = 1.0\n");
  auto episode = open();
  run(*episode, "touch a.txt");
  EXPECT_EQ(next(*episode), "the end");
  EXPECT_EQ(next(*episode), "the end");  // asked again, nothing more happens
  const auto grade = episode->score("done");
  EXPECT_EQ(grade->reward, 0.5);
  EXPECT_THAT(grade->terms, ElementsAre(Pair("step first", 0.5), Pair("unread_calls", 0)));
  episode = open();
  run(*episode, "echo one > a.txt");
  EXPECT_EQ(next(*episode), "Write two into b.txt.\n");
}

TEST_F(HarborSteps, with_final_the_last_step_counts_alone) {
  put_toml("multi_step_reward_strategy = \"final\"\n");
  auto episode = open();
  EXPECT_EQ(next(*episode), "Write two into b.txt.\n");
  run(*episode, "echo two > b.txt");
  EXPECT_EQ(episode->score("")->reward, 1);
  episode = open();
  run(*episode, "echo one > a.txt");
  EXPECT_EQ(episode->score("")->reward, 1);  // cut off in the first step, which is then the last that was begun
  episode = open();
  run(*episode, "echo one > a.txt; touch broken");
  EXPECT_EQ(next(*episode), "the end");  // the second cannot be set up
  const auto grade = episode->score("");
  EXPECT_EQ(grade->reward, 0);
  EXPECT_THAT(grade->why, HasSubstr("step second: its setup failed"));
}

TEST_F(HarborSteps, a_branch_goes_on_from_its_step) {
  const auto episode = open();
  run(*episode, "echo one > a.txt");
  next(*episode);
  const auto branch = episode->branch();
  ASSERT_TRUE(branch.has_value()) << branch.error().to_string();
  run(**branch, "echo two > b.txt");
  EXPECT_EQ((*branch)->score("")->reward, 1);
  EXPECT_EQ(episode->score("")->reward, 0.5);
}

TEST_F(HarborSteps, they_are_validated_step_by_step) {
  const auto task = *only_task(set_.path / "t");
  EXPECT_EQ(play_solution(task, *backend_)->reward, 1);
  const auto validation = validate(task, *backend_, 1);
  EXPECT_THAT(validation.findings, ElementsAre());
  set_.put("t/steps/second/tests/test.sh", ". /tests/lib.sh\ngive 1\n");
  const auto weak = validate(*only_task(set_.path / "t"), *backend_, 1);
  ASSERT_FALSE(weak.findings.empty());
  EXPECT_EQ(weak.findings[0], "doing nothing scores 0.5");
  EXPECT_NE(weak.digest, validation.digest);
  fs::remove_all(set_.path / "t/steps/first/solution");
  EXPECT_THAT(validate(*only_task(set_.path / "t"), *backend_, 1).findings[0], HasSubstr("has no solution"));
}

TEST_F(HarborSteps, mistakes_are_named_with_their_place) {
  set_.put(
      "t/task.toml",
      "multi_step_reward_strategy = \"best\"\n[[steps]]\nname = \"first\"\nmin_reward = {tests = 1.0}\n"
      "artifacts = [\"/x\"]\n[[steps]]\nname = \"first\"\nmin_rewards = 1\n[steps.healthcheck]\ncommand = \"true\"\n"
      "[[steps]]\nname = \"../x\"\n");
  const auto all = mistakes();
  for (const char* part :
       {"task.toml:1: multi_step_reward_strategy must be \"mean\" or \"final\"", "task.toml:4: min_reward must be",
        "task.toml:5: artifacts is not supported", "a step has no name of its own",
        "task.toml:8: unknown key min_rewards; did you mean min_reward?", "healthcheck is not supported"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  put_toml("");
  fs::remove(set_.path / "t/steps/second/instruction.md");
  fs::remove(set_.path / "t/tests/test.sh");
  EXPECT_THAT(mistakes(), testing::AllOf(HasSubstr("steps/second/instruction.md"), HasSubstr("has no test.sh")));
}

// What a rollout is told over the wire.
TEST_F(HarborSteps, the_environment_server_gives_the_next_instruction_for_an_answer) {
  const auto task = *only_task(set_.path / "t");
  const SystemClock clock;
  const auto address = "ipc:///tmp/tandem-steps-" + std::to_string(getpid());
  StopFlags stop;
  std::thread server([&] {
    const auto served = serve({.address = address,
                               .identity = {.sender = "env-0", .epoch = 1, .run = 1},
                               .make_task = [&](const TaskSpec&) { return Result<Task>(task); }},
                              *backend_, clock, stop, [](const std::string&, const ServerCounters&) {});
    EXPECT_TRUE(served) << served.to_string();
  });
  {
    zmq::context_t context;
    auto client = *wire::Socket::connect(context, address, {.sender = "rollout-0", .epoch = 1, .run = 1});
    uint64_t last = 0, lease = 0;
    const auto ask = [&](const std::function<void(wire::Body::Builder)>& write) {
      wire::Outgoing message(++last);
      write(message.body());
      EXPECT_TRUE(within(30s, [&] { return client.send("", message).ok(); }));
      std::optional<wire::Incoming> answer;
      EXPECT_TRUE(within(30s, [&] {
        while ((answer = client.receive())) {
          if (answer->id() == last) return true;
        }
        return false;
      }));
      return answer;
    };
    const auto say = [&](uint32_t turn, const std::string& answer, const std::vector<ParsedCall>& calls = {}) {
      return ask([&](wire::Body::Builder body) {
        auto call = body.initCall();
        call.setLease(lease);
        call.setTurn(turn);
        write_calls(calls, call.initCalls(static_cast<unsigned>(calls.size())));
        call.setAnswer(answer);
      });
    };
    const auto acquired = ask([](wire::Body::Builder body) {
      auto in = body.initAcquire();
      in.setEpisode(1);
      in.setKind("t");
      in.setSplit("train");
    });
    ASSERT_TRUE(acquired && acquired->body().isAcquired());
    lease = acquired->body().getAcquired().getLease();
    EXPECT_EQ(acquired->body().getAcquired().getMaxTurns(), 60u);
    for (int times = 0; times < 2; ++times) {  // the same turn again is answered again, and no step is left out
      const auto answered = say(0, "It is done.");
      ASSERT_TRUE(answered && answered->body().isCalled());
      const auto called = answered->body().getCalled();
      EXPECT_TRUE(called.getNextStep());
      EXPECT_EQ(called.getResults().size(), 0u);
      EXPECT_EQ(std::string(called.getInstruction().cStr()), "Write two into b.txt.\n");
    }
    const auto call = say(1, "", {{.call = {"write", {{"file_path", "b.txt"}, {"contents", "two"}}}}});
    ASSERT_TRUE(call && call->body().isCalled());
    EXPECT_FALSE(call->body().getCalled().getNextStep());
    const auto ended = say(2, "It is done, too.");
    ASSERT_TRUE(ended && ended->body().isCalled());
    EXPECT_FALSE(ended->body().getCalled().getNextStep());
    const auto scored = ask([&](wire::Body::Builder body) {
      auto in = body.initScore();
      in.setLease(lease);
      in.setAnswer("It is done, too.");
    });
    ASSERT_TRUE(scored && scored->body().isScored());
    EXPECT_EQ(scored->body().getScored().getReward(), 0.5);
  }
  stop.now = true;
  server.join();
}

}  // namespace
}  // namespace tandem::envs
