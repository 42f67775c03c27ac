// Programs beside the server, and what they leave.
#include "envs/sandbox/keeper.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "envs/tools/process.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

class Keeper : public testing::Test {
 protected:
  ProcessSpec program(const std::string& command, double seconds = 60) const {
    return {.argv = kept({"/bin/sh", "-c", command}),
            .directory = folder_.path,
            .environment = {"PATH=/usr/local/bin:/usr/bin:/bin"},
            .time_limit_s = seconds};
  }
  // Starts a process in a session of its own, which says its number in the file `left`.
  static std::string leaves_one() {
    return "setsid sh -c 'echo $$ > left.new; mv left.new left; exec sleep 10000' > /dev/null 2>&1 & "
           "while ! test -s left; do sleep 0.01; done; ";
  }
  static bool comes_true(const std::function<bool()>& what) {
    for (int i = 0; i < 6000 && !what(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return what();
  }
  void expect_nobody_left() {
    ASSERT_FALSE(folder_.get("left").empty());
    const pid_t left = static_cast<pid_t>(std::stol(folder_.get("left")));
    ASSERT_GT(left, 1);
    EXPECT_TRUE(comes_true([&] { return kill(left, 0) != 0; })) << left;
  }
  Scratch folder_;
};

TEST_F(Keeper, a_program_ends_as_it_would_without) {
  const auto said = run_process(program("echo out; echo err >&2; exit 3"));
  ASSERT_TRUE(said.has_value()) << said.error().to_string();
  EXPECT_EQ(said->exit_code, 3);
  EXPECT_EQ(said->output, "out\nerr\n");
  EXPECT_EQ(run_process(program("kill -9 $$"))->exit_code, 137);
  auto input = program("cat; pwd");
  input.input = "from us\n";
  EXPECT_EQ(run_process(input)->output, "from us\n" + fs::canonical(folder_.path).string() + "\n");
  auto none = program("");
  none.argv = kept({"/no/such/program"});
  EXPECT_EQ(run_process(none)->exit_code, 127);
}

TEST_F(Keeper, what_moved_to_another_session_ends_with_its_program) {
  const auto ended = run_process(program(leaves_one() + "exit 0"));
  ASSERT_TRUE(ended.has_value()) << ended.error().to_string();
  EXPECT_EQ(ended->exit_code, 0);
  expect_nobody_left();
}

TEST_F(Keeper, what_moved_to_another_session_ends_where_the_program_is_too_slow) {
  const auto ended = run_process(program(leaves_one() + "sleep 10000", 15));
  ASSERT_TRUE(ended.has_value()) << ended.error().to_string();
  EXPECT_TRUE(ended->timed_out);
  expect_nobody_left();
}

TEST_F(Keeper, nothing_is_left_where_the_server_is_killed) {
  const pid_t server = fork();
  if (server == 0) {
    (void)run_process(program(leaves_one() + "sleep 10000"));
    _exit(0);
  }
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(folder_.path / "left"); }));
  kill(server, SIGKILL);
  while (waitpid(server, nullptr, 0) < 0 && errno == EINTR) {
  }
  expect_nobody_left();
}

}  // namespace
}  // namespace tandem::envs
