#include "run/starts.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "base/record_log.h"
#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using testing::HasSubstr;
using wire::Role;

class StartsTest : public TemporaryRun {
 protected:
  const SystemClock clock_{};
};

TEST_F(StartsTest, every_peer_has_a_count_of_its_own) {
  const wire::Peer first{Role::kRollout, 0}, second{Role::kRollout, 1}, trainer{Role::kTrainer, 0};
  EXPECT_EQ(*count_start(dir(), first, clock_), 1u);
  EXPECT_EQ(*count_start(dir(), first, clock_), 2u);
  EXPECT_EQ(*count_start(dir(), second, clock_), 1u);
  EXPECT_EQ(*count_start(dir(), trainer, clock_), 1u);
  EXPECT_EQ(*count_start(dir(), first, clock_), 3u);
}

TEST_F(StartsTest, the_count_grows_though_the_wall_clock_goes_back) {
  const BackwardClock clock;
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) EXPECT_EQ(*count_start(dir(), {Role::kEnv, 0}, clock), epoch);
}

TEST_F(StartsTest, processes_that_count_at_once_get_different_numbers) {
  std::vector<std::vector<uint64_t>> counted(4);
  {
    std::vector<std::jthread> threads;
    for (auto& numbers : counted) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) numbers.push_back(count_start(dir(), {Role::kEnv, 1}, clock_).value_or(0));
      });
    }
  }
  std::set<uint64_t> all;
  for (const auto& numbers : counted) all.insert(numbers.begin(), numbers.end());
  EXPECT_EQ(all.size(), 40u);
  EXPECT_EQ(*all.begin(), 1u);
  EXPECT_EQ(*all.rbegin(), 40u);
}

TEST_F(StartsTest, a_start_whose_record_was_cut_short_never_happened_and_damage_is_named) {
  ASSERT_TRUE(count_start(dir(), {Role::kEnv, 0}, clock_));
  const auto whole = fs::file_size(dir() / "starts.log");
  ASSERT_TRUE(count_start(dir(), {Role::kEnv, 0}, clock_));
  fs::resize_file(dir() / "starts.log", fs::file_size(dir() / "starts.log") - 3);
  EXPECT_EQ(*count_start(dir(), {Role::kEnv, 0}, clock_), 2u);

  std::string bytes = *read_file(dir() / "starts.log");
  bytes[whole - 2] ^= 1;
  ASSERT_TRUE(write_file(dir() / "starts.log", bytes));
  const auto refused = count_start(dir(), {Role::kEnv, 0}, clock_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kCorrupt);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("starts.log"));
}

TEST_F(StartsTest, a_log_of_something_else_is_refused_with_what_to_do) {
  for (const char* foreign : {"Nov 26 07:44:51 systemd[1]: Started.", "0123456789"}) {
    ASSERT_TRUE(write_file(dir() / "starts.log", foreign));
    const auto refused = count_start(dir(), {Role::kEnv, 0}, clock_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kCorrupt);
    EXPECT_THAT(refused.error().message(), HasSubstr("starts.log: is not a record log"));
    EXPECT_THAT(refused.error().hint(), HasSubstr("move the file away"));
    EXPECT_EQ(*read_file(dir() / "starts.log"), foreign) << "it is somebody's";
  }
  fs::remove(dir() / "starts.log");
  {
    auto log = RecordLog::open(dir() / "starts.log");
    ASSERT_TRUE(log);
    ASSERT_TRUE(log->append("not JSON"));
  }
  const auto refused = count_start(dir(), {Role::kEnv, 0}, clock_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("no start of a process\n  hint: move the file away"));
}

}  // namespace
}  // namespace tandem::run
