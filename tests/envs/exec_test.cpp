// An operator who runs a program in a sandbox beside the episode that has it.
#include <future>

#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/pool.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class ExecTest : public EitherSandbox {
 protected:
  ExecOutcome exec(std::vector<std::string> argv, double seconds = 10, size_t limit = 65536) {
    const ExecRequest request{.argv = std::move(argv), .seconds = seconds, .output_limit = limit};
    auto outcome = exec_in(*sandbox_, request, {});
    EXPECT_TRUE(outcome.has_value()) << outcome.error().to_string();
    return outcome ? *outcome : ExecOutcome{};
  }
  ExecOutcome look_by(const std::string& command, double seconds = 10) {
    return exec({"bash", "-c", command}, seconds);
  }
};

FOR_BOTH_KINDS_OF_SANDBOXES(ExecTest);

TEST_P(ExecTest, a_look_starts_where_the_shell_is_and_leaves_it_as_it_was) {
  shell("mkdir deep; cd deep; export COLOUR=green");
  const auto seen = look_by("pwd; echo $COLOUR; cd /tmp; export COLOUR=red OTHER=1");
  EXPECT_EQ(seen.output, "/workspace/deep\ngreen\n");
  EXPECT_EQ(seen.errors, "");
  EXPECT_EQ(seen.exit_code, 0);
  EXPECT_EQ(shell("pwd; echo $COLOUR$OTHER"), "/workspace/deep\ngreen\n");
}

TEST_P(ExecTest, output_errors_and_exit_code_are_the_programs_own) {
  const auto mixed = look_by("echo out; echo err >&2; exit 7");
  EXPECT_EQ(mixed.output, "out\n");
  EXPECT_EQ(mixed.errors, "err\n");
  EXPECT_EQ(mixed.exit_code, 7);
  EXPECT_EQ(exec({"printf", "a\\0b\\377"}).output, std::string("a\0b\377", 4));
  EXPECT_EQ(look_by("kill -9 $$").exit_code, 137);
  const auto none = exec({"no-such-program"});
  EXPECT_EQ(none.exit_code, 127);
  EXPECT_THAT(none.errors, HasSubstr("no-such-program"));
  EXPECT_EQ(exec({"/etc/passwd"}).exit_code, 126);
  EXPECT_EQ(exec({"cat"}).output, "") << "there is no input";
}

TEST_P(ExecTest, time_and_output_are_bounded_and_nothing_runs_on) {
  const auto late = look_by("echo begun; setsid sleep 1000 & sleep 1000", 2);
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.exit_code, 124);
  EXPECT_EQ(late.output, "begun\n");
  EXPECT_LT(late.seconds, 60);
  (void)look_by("setsid sleep 1000 & disown");
  EXPECT_EQ(exec({"pgrep", "-c", "sleep"}).output, "0\n");
  const auto long_one = exec({"bash", "-c", "yes | head -c 10000000; yes | head -c 10000000 >&2"}, 30, 1000);
  EXPECT_TRUE(long_one.truncated);
  EXPECT_LT(long_one.output.size(), 1200u);
  EXPECT_LT(long_one.errors.size(), 1200u);
}

TEST_P(ExecTest, a_look_and_a_call_run_at_once) {
  auto call_result = std::async(
      std::launch::async, [&] { return shell("touch begun; while [ ! -e go ]; do sleep 0.01; done; echo gone"); });
  ASSERT_TRUE(within(30s, [&] { return exec({"test", "-e", "begun"}).exit_code == 0; }));
  EXPECT_EQ(look_by("touch go").exit_code, 0);
  EXPECT_EQ(call_result.get(), "gone\n");
}

TEST_P(ExecTest, files_are_collected_though_somebody_looks_in) {
  auto looking = std::async(std::launch::async, [&] {
    const ExecRequest request{.argv = {"bash", "-c", "touch looking; sleep 100"}, .seconds = 100};
    return exec_in(*sandbox_, request, {});
  });
  ASSERT_TRUE(within(30s, [&] { return exec({"test", "-e", "looking"}).exit_code == 0; }));
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected) << collected.error().to_string();
  EXPECT_TRUE(collected->files.contains("looking"));
  const auto looked = looking.get();
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code(), Code::kUnavailable);
}

TEST_P(ExecTest, a_look_that_is_cancelled_ends_and_the_sandbox_goes_on) {
  std::stop_source stop;
  auto looking = std::async(std::launch::async, [&] {
    const ExecRequest request{.argv = {"bash", "-c", "touch looking; sleep 100"}, .seconds = 100};
    return exec_in(*sandbox_, request, stop.get_token());
  });
  ASSERT_TRUE(within(30s, [&] { return exec({"test", "-e", "looking"}).exit_code == 0; }));
  stop.request_stop();
  ASSERT_EQ(looking.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(shell("echo on"), "on\n");
}

TEST_P(ExecTest, a_sandbox_that_is_ended_says_why_to_the_call_in_it_and_to_all_that_follow) {
  auto running = std::async(std::launch::async, [&] {
    return sandbox_->call("run_terminal_cmd", {{"command", "touch begun; sleep 100"}});
  });
  ASSERT_TRUE(within(30s, [&] { return exec({"test", "-e", "begun"}).exit_code == 0; }));
  sandbox_->end("for this test");
  sandbox_->end("again");
  const auto outcome = running.get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_EQ(outcome.error().message(), "for this test");
  EXPECT_EQ(sandbox_->collect().error().message(), "for this test");
  EXPECT_TRUE(within(30s, [&] { return sandbox_->has_ended(); }));
  EXPECT_EQ(usage_of(*sandbox_).processes, 0u);
}

TEST_P(ExecTest, what_a_sandbox_uses_is_counted) {
  const auto before = usage_of(*sandbox_);
  EXPECT_GE(before.processes, 1u);
  EXPECT_GT(before.memory_bytes, 0u);
  shell("head -c 20000000 /dev/zero > big");
  call("run_terminal_cmd", {{"command", "sleep 100"}, {"is_background", true}});
  const auto after = usage_of(*sandbox_);
  EXPECT_GT(after.processes, before.processes);
  EXPECT_GE(after.memory_bytes, before.memory_bytes);
}

class WatchedTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = NamespaceBackend::start(IsolatedBy::kNamespaces);
    ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
    backend_ = std::move(*backend);
    watched_.emplace(*backend_, clock_, 7);
  }
  std::vector<SandboxRow> rows() const { return watched_->rows(0, 100); }

  const SystemClock clock_{};
  std::unique_ptr<NamespaceBackend> backend_;
  std::optional<WatchedBackend> watched_;
  SandboxHolder holder_{.lease = 1, .episode = 2, .attempt = 3, .task = "t"};
};

TEST_F(WatchedTest, sandboxes_of_a_pool_are_seen_from_before_they_are_taken_until_they_are_let_go) {
  SandboxPool pool(*watched_, clock_, {}, {.least = 1, .most = 1});
  ASSERT_TRUE(within(30s, [&] { return rows().size() == 1; }));
  const auto warm = rows()[0];
  EXPECT_EQ(warm.state, SandboxState::kWarm);
  EXPECT_GE(warm.usage.processes, 1u);
  SandboxSpec spec;
  spec.holder = holder_;
  auto sandbox = pool.create(spec);
  ASSERT_TRUE(sandbox);
  EXPECT_EQ(rows()[0].id, warm.id);
  EXPECT_EQ(rows()[0].state, SandboxState::kLeased);
  EXPECT_EQ(rows()[0].holder, holder_);
  ASSERT_TRUE((*sandbox)->call("run_terminal_cmd", {{"command", "exit 3"}}));
  sandbox->reset();
  const auto events = watched_->events(0, warm.id, 100);
  ASSERT_TRUE(events);
  ASSERT_EQ(events->events.size(), 4u);
  EXPECT_EQ(events->events[2].what, "run_terminal_cmd");
  EXPECT_EQ(events->events[2].exit_code, 3);
  EXPECT_EQ(events->events[3].what, "released");
  EXPECT_EQ(watched_->figures().taken_warm, 1u);
  EXPECT_EQ(watched_->events(0, "zzzz-1", 1).error().code(), Code::kNotFound);
}

TEST_F(WatchedTest, a_kill_is_the_failure_of_a_call_and_not_its_outcome) {
  SandboxSpec spec;
  spec.holder = holder_;
  auto sandbox = watched_->create(spec);
  ASSERT_TRUE(sandbox);
  const auto id = rows().at(0).id;
  auto running = std::async(std::launch::async, [&] {
    return (*sandbox)->call("run_terminal_cmd", {{"command", "sleep 100"}});
  });
  ASSERT_TRUE(within(30s, [&] { return rows().at(0).state == SandboxState::kCalling; }));
  const auto before = watched_->kill(id);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->state, SandboxState::kCalling);
  EXPECT_EQ(before->doing, "run_terminal_cmd");
  const auto outcome = running.get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_EQ(outcome.error().message(), "an operator ended the sandbox");
  EXPECT_EQ(rows().at(0).state, SandboxState::kDraining);
  EXPECT_EQ(watched_->exec(id, {.argv = {"ls"}}, {}).error().code(), Code::kNotFound);
  sandbox->reset();
  EXPECT_EQ(watched_->figures().ended.at(EndReason::kOperator), 1u);
  EXPECT_EQ(watched_->kill(id).error().code(), Code::kNotFound);
}

TEST_F(WatchedTest, a_sandbox_that_is_let_go_while_somebody_looks_in_ends_at_once) {
  SandboxSpec spec;
  spec.holder = holder_;
  auto sandbox = watched_->create(spec);
  ASSERT_TRUE(sandbox);
  const auto id = rows().at(0).id;
  auto looking = std::async(std::launch::async, [&] {
    return watched_->exec(id, {.argv = {"bash", "-c", "touch looking; sleep 100"}, .seconds = 100}, {});
  });
  ASSERT_TRUE(within(30s, [&] { return watched_->exec(id, {.argv = {"test", "-e", "looking"}}, {})->exit_code == 0; }));
  sandbox->reset();
  ASSERT_EQ(looking.wait_for(20s), std::future_status::ready);
  EXPECT_FALSE(looking.get());
  EXPECT_TRUE(rows().empty());
}

TEST_F(WatchedTest, one_whose_first_process_is_killed_counts_as_lost) {
  auto sandbox = watched_->create({});
  ASSERT_TRUE(sandbox);
  pid_t spawner = 0;
  for (const pid_t child : children_of(getpid())) spawner = child;
  for (const pid_t first : sandboxes_of(spawner)) kill(first, SIGKILL);
  EXPECT_FALSE((*sandbox)->call("list_dir", {{"target_directory", "."}}));
  sandbox->reset();
  EXPECT_EQ(watched_->figures().ended.at(EndReason::kLost), 1u);
}

}  // namespace
}  // namespace tandem::envs
