#include "run/launcher.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

// What the processes are that these tests start: this program, with this test alone.
TEST(ProcessOfTheLauncherTests, DISABLED_says_a_word_and_sleeps) {
  ASSERT_EQ(::write(STDOUT_FILENO, "awake\n", 6), 6);
  ::sleep(600);
}

class LocalLauncherTest : public TemporaryRun {
 protected:
  Job job(const std::string& filter) const {
    return {.arguments = {"--gtest_also_run_disabled_tests", "--gtest_filter=" + filter}, .log = dir() / "log"};
  }
  // The first process that ends within a minute.
  Ending wait() {
    for (const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
         std::chrono::steady_clock::now() < limit; ::usleep(10'000)) {
      if (const auto ended = launcher_.poll(); !ended.empty()) return ended.front();
    }
    return {};
  }
  void wait_for_words() const {
    for (int i = 0; i < 6000 && read_file(dir() / "log").value_or("").find("awake") == std::string::npos; ++i)
      ::usleep(10'000);
  }
  LocalLauncher launcher_;
};

TEST_F(LocalLauncherTest, tells_how_a_process_ended_and_keeps_what_it_said) {
  const auto process = launcher_.start(job("NoSuchTest"));
  ASSERT_TRUE(process) << process.error().to_string();
  const Ending ending = wait();
  EXPECT_EQ(ending.process, *process);
  EXPECT_EQ(ending.code, 0);
  EXPECT_EQ(ending.signal, 0);
  EXPECT_NE(read_file(dir() / "log")->find("0 tests"), std::string::npos);
  EXPECT_TRUE(launcher_.poll().empty()) << "it is told once";
}

// As `tandem serve` and `tandem run` are that start them.
TEST_F(LocalLauncherTest, a_signal_to_a_process_that_has_just_begun_is_not_lost_in_the_handler_of_its_parent) {
  struct sigaction flag {
  }, before{};
  flag.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGTERM, &flag, &before), 0);
  for (int i = 0; i < 20; ++i) {
    const auto process = launcher_.start(job("ProcessOfTheLauncherTests.*"));
    ASSERT_TRUE(process);
    launcher_.end(*process, EndKind::kAsk);
    const Ending ending = wait();
    EXPECT_EQ(ending.process, *process);
    EXPECT_EQ(ending.signal, SIGTERM);
    if (ending.process == *process) continue;
    launcher_.end(*process, EndKind::kNow);
    launcher_.await(*process);
    break;
  }
  ASSERT_EQ(::sigaction(SIGTERM, &before, nullptr), 0);
}

TEST_F(LocalLauncherTest, ends_a_process_at_once_or_asks_it_to_end) {
  for (const auto& [kind, signal] : {std::pair(EndKind::kAsk, SIGTERM), std::pair(EndKind::kNow, SIGKILL)}) {
    const auto process = launcher_.start(job("ProcessOfTheLauncherTests.*"));
    ASSERT_TRUE(process);
    wait_for_words();
    EXPECT_TRUE(launcher_.poll().empty());
    launcher_.end(*process, kind);
    const Ending ending = wait();
    EXPECT_EQ(ending.process, *process);
    EXPECT_EQ(ending.signal, signal);
    launcher_.end(*process, kind);  // it is gone: nobody else is hit
  }
  const auto process = launcher_.start(job("ProcessOfTheLauncherTests.*"));
  ASSERT_TRUE(process);
  launcher_.end(*process, EndKind::kNow);
  launcher_.await(*process);
  EXPECT_NE(::kill(static_cast<pid_t>(*process), 0), 0);
  EXPECT_TRUE(launcher_.poll().empty());
}

TEST_F(LocalLauncherTest, a_process_that_the_kernel_killed_for_lack_of_memory_is_told_from_one_that_somebody_killed) {
  uint64_t kills = 7;  // of the time before
  LocalLauncher launcher([&] { return kills; });
  const auto how_it_ended = [&](bool by_launcher, uint64_t more) {
    const auto process = launcher.start(job("ProcessOfTheLauncherTests.*"));
    EXPECT_TRUE(process);
    kills += more;
    if (by_launcher)
      launcher.end(*process, EndKind::kNow);
    else
      ::kill(static_cast<pid_t>(*process), SIGKILL);
    std::vector<Ending> ended;
    for (int i = 0; i < 6000 && ended.empty(); ++i, ::usleep(10'000)) ended = launcher.poll();
    return ended.empty() ? Ending{} : ended.front();
  };
  EXPECT_EQ(how_it_ended(false, 0).how, "");
  const Ending killed = how_it_ended(false, 1);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_THAT(killed.how, testing::HasSubstr("killed by the kernel for lack of memory"));
  EXPECT_EQ(how_it_ended(true, 1).how, "") << "a tool of an episode may have run out of memory meanwhile";
}

TEST_F(LocalLauncherTest, a_log_that_cannot_be_written_is_an_error_with_its_path) {
  Job nowhere = job("NoSuchTest");
  nowhere.log = dir() / "no-folder" / "log";
  const auto process = launcher_.start(nowhere);
  ASSERT_FALSE(process);
  EXPECT_NE(process.error().message().find("no-folder"), std::string::npos);
}

}  // namespace
}  // namespace tandem::run
