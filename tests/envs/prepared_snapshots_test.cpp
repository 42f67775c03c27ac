#include "envs/episodes/prepared_snapshots.h"

#include <signal.h>

#include <thread>

#include "envs/episodes/episode.h"
#include "envs/sandbox/capabilities.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class PreparedSnapshotsTest : public SandboxTest {
 protected:
  void SetUp() override {
    spec_.sealable = true;
    SandboxTest::SetUp();
    if (!sandbox_) return;
    if (const auto sealed = seal(*sandbox_); !sealed) GTEST_SKIP() << sealed.error().to_string();
    task_.name = "a task";
    for (int i = 0; i < 200; ++i) task_.files["f/" + std::to_string(i)] = std::string(1000, 'x');
    task_.setup = {"date +%N > f/0; echo once >> log"};
    options_.prepared = &prepared_;
  }
  std::unique_ptr<Episode> open() {
    auto episode = Episode::open(task_, *backend_, options_);
    EXPECT_TRUE(episode.has_value()) << episode.error().to_string();
    return episode ? std::move(*episode) : nullptr;
  }
  static std::string shell_of(Episode& episode, const std::string& command) {
    return episode.call("run_terminal_cmd", {{"command", command}})->output;
  }

  Task task_;
  PreparedSnapshots prepared_{64 << 20};
  EpisodeOptions options_;
};

TEST_F(PreparedSnapshotsTest, are_made_once_and_nobody_sees_what_another_writes) {
  const auto first = open(), second = open();
  const auto stamp = shell_of(*first, "cat f/0 log; ls f | wc -l");
  EXPECT_THAT(stamp, HasSubstr("once\n200\n"));
  shell_of(*first, "rm -r f; echo twice >> log");
  EXPECT_EQ(shell_of(*second, "cat f/0 log; ls f | wc -l"), stamp);
  EXPECT_EQ(shell_of(*open(), "cat f/0 log; ls f | wc -l"), stamp);
  EXPECT_EQ(prepared_.counters().made, 1u);
  EXPECT_EQ(prepared_.counters().begun, 3u);
  EXPECT_GE(prepared_.counters().bytes, 200u * 4096);
  task_.files["f/1"] = "other";
  EXPECT_EQ(shell_of(*open(), "cat f/1; echo"), "other\n");
  task_.setup.back() += "; echo more >> log";
  EXPECT_EQ(shell_of(*open(), "cat log"), "once\nmore\n");
  EXPECT_EQ(prepared_.counters().made, 3u);
}

TEST_F(PreparedSnapshotsTest, of_many_at_once_are_made_by_one_and_awaited_by_the_others) {
  std::vector<std::string> stamps(8);
  {
    std::vector<std::jthread> threads;
    for (auto& stamp : stamps) threads.emplace_back([&] { stamp = shell_of(*open(), "cat f/0 log"); });
  }
  for (const auto& stamp : stamps) EXPECT_EQ(stamp, stamps.front());
  EXPECT_EQ(prepared_.counters().made, 1u);
}

TEST_F(PreparedSnapshotsTest, that_cannot_be_shared_are_made_for_each) {
  task_.setup = {"head -c 140M /dev/zero > large; date +%N > f/0"};
  const auto first = shell_of(*open(), "cat f/0"), second = shell_of(*open(), "cat f/0");
  EXPECT_NE(first, second);
  EXPECT_EQ(prepared_.counters().made, 0u);
}

TEST_F(PreparedSnapshotsTest, that_fail_are_an_error_for_each_and_nothing_is_kept) {
  task_.setup = {"echo words; false"};
  for (int i = 0; i < 2; ++i) {
    const auto failed = Episode::open(task_, *backend_, options_);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), Code::kUnavailable);
    EXPECT_THAT(failed.error().message(), HasSubstr("words"));
  }
  EXPECT_EQ(prepared_.counters().kept, 0u);
  task_.setup = {};
  EXPECT_EQ(shell_of(*open(), "ls f | wc -l"), "200\n");
}

TEST_F(PreparedSnapshotsTest, beyond_the_bound_go_and_live_on_under_their_episodes) {
  PreparedSnapshots few(3 << 20);
  options_.prepared = &few;
  std::vector<std::unique_ptr<Episode>> episodes;
  for (int i = 0; i < 4; ++i) {
    task_.files["f/1"] = std::to_string(i);
    episodes.push_back(open());
  }
  EXPECT_EQ(few.counters().made, 4u);
  EXPECT_LT(few.counters().kept, 4u);
  EXPECT_GT(few.counters().kept, 0u);
  EXPECT_LE(few.counters().bytes, 3u << 20);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(shell_of(*episodes[static_cast<size_t>(i)], "cat f/1; echo"), std::to_string(i) + "\n");
}

TEST_F(PreparedSnapshotsTest, that_are_lost_with_what_held_them_are_made_again) {
  const auto first = open();
  for (const pid_t child : children_of(getpid())) {
    if (name_of(child) != "tandem-layers\n") continue;
    kill(child, SIGKILL);
    EXPECT_TRUE(within(30s, [&] { return is_gone(child); }));
  }
  EXPECT_EQ(shell_of(*first, "ls f | wc -l"), "200\n") << "what has begun goes on";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shell_of(*open(), "ls f | wc -l"), "200\n");
  EXPECT_EQ(prepared_.counters().made, 2u);
}

TEST_F(PreparedSnapshotsTest, of_little_are_put_into_a_sandbox_that_is_ready) {
  task_.setup.clear();
  task_.files = {{"f", "x\n"}};
  EXPECT_EQ(shell_of(*open(), "cat f"), "x\n");
  EXPECT_EQ(prepared_.counters().made, 0u);
}

TEST_F(PreparedSnapshotsTest, an_episode_branches_without_a_copy_and_goes_on) {
  options_.branches = true;
  const auto episode = open();
  shell_of(*episode, "cd f; export X=1; head -c 60M /dev/zero > large; rm 1");  // more than a copy takes
  const auto branch = episode->branch();
  ASSERT_TRUE(branch.has_value()) << branch.error().to_string();
  EXPECT_EQ(shell_of(**branch, "pwd; echo $X; stat -c %s large; ls | wc -l; rm large"),
            "/workspace/f\n1\n62914560\n200\n");
  EXPECT_EQ(shell_of(*episode, "pwd; echo $X; stat -c %s large; ls | wc -l"), "/workspace/f\n1\n62914560\n200\n");
  EXPECT_EQ(episode->tool_calls(), (*branch)->tool_calls());
}

}  // namespace
}  // namespace tandem::envs
