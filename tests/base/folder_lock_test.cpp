#include "base/folder_lock.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/json.h"
#include "tests/within.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uint64_t kNfs = 0x6969, kExt4 = 0xEF53;

class FolderLockTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root()); }
  void TearDown() override { fs::remove_all(root()); }
  static fs::path root() { return fs::temp_directory_path() / ("tandem-folder-lock-" + std::to_string(::getpid())); }
  static FolderLockSettings of(uint64_t type, const std::string& machine, Duration patience = 60s) {
    return {.file_system = [type](int) { return type; }, .machine = machine, .beat = 20ms, .patience = patience};
  }
  // What another machine, whose kernel's locks are not seen here, has written.
  static void write_foreign(int count) {
    ASSERT_TRUE(write_file(
        root() / "lock.json",
        R"({"host":"node-3","pid":7,"since":1795797600,"machine":"other","count":)" + std::to_string(count) + "}\n"));
  }
  SystemClock clock_;
};

TEST_F(FolderLockTest, the_second_process_is_told_who_has_it_and_since_when_and_a_release_leaves_nothing) {
  {
    const auto first = FolderLock::claim(root(), clock_);
    ASSERT_TRUE(first) << first.error().to_string();
    const auto second = FolderLock::claim(root(), clock_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kInvalid);
    EXPECT_THAT(second.error().message(), HasSubstr("in use by process " + std::to_string(::getpid()) + " on "));
    EXPECT_THAT(second.error().message(), HasSubstr(", since 20"));
    EXPECT_TRUE(first->check().ok());
  }
  EXPECT_TRUE(fs::is_empty(root()));
  EXPECT_TRUE(FolderLock::claim(root(), clock_));
}

TEST_F(FolderLockTest, a_process_that_was_killed_holds_nothing) {
  const fs::path folder = root();  // it is named after this process
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::claim(folder, clock_);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(folder / "lock.json"));
  for (const uint64_t type : {kExt4, kNfs}) EXPECT_TRUE(FolderLock::claim(root(), clock_, of(type, "")));
}

TEST_F(FolderLockTest, on_a_shared_file_system_a_record_of_another_machine_that_counts_is_respected) {
  write_foreign(1);
  std::jthread other([](const std::stop_token& stop) {
    for (int count = 2; !stop.stop_requested(); ++count) {
      write_foreign(count);
      std::this_thread::sleep_for(20ms);
    }
  });
  const auto lock = FolderLock::claim(root(), clock_, of(kNfs, "mine"));
  ASSERT_FALSE(lock);
  EXPECT_THAT(lock.error().message(), HasSubstr("in use by process 7 on node-3, since 2026-11-27T16:40:00Z"));
}

TEST_F(FolderLockTest, a_record_of_another_machine_that_stands_still_is_taken_over) {
  write_foreign(1);
  const auto lock = FolderLock::claim(root(), clock_, of(kNfs, "mine", 200ms));
  ASSERT_TRUE(lock) << lock.error().to_string();
  // It counts itself, so that the other machine would see it.
  const auto before = read_file(root() / "lock.json");
  EXPECT_TRUE(within(60s, [&] { return *read_file(root() / "lock.json") != *before; }));
  EXPECT_TRUE(lock->check().ok());
  // Taken while it stood still, it says so and leaves the other's record.
  write_foreign(9);
  const Status lost = lock->check();
  EXPECT_EQ(lost.code(), Code::kUnavailable);
  EXPECT_THAT(lost.message(), HasSubstr("taken by process 7 on node-3"));
}

TEST_F(FolderLockTest, on_a_file_system_of_one_machine_an_old_record_is_waited_for_by_nobody) {
  write_foreign(1);
  EXPECT_TRUE(FolderLock::claim(root(), clock_, of(kExt4, "mine", 10min)));
  for (const char* words : {"", "{", "[]", R"({"pid":"x","since":-1})", R"({"pid":1e300,"since":1e300})"}) {
    std::ofstream(root() / "lock.json") << words;
    EXPECT_TRUE(FolderLock::claim(root(), clock_, of(kExt4, "mine"))) << words;
  }
}

TEST_F(FolderLockTest, a_record_of_a_later_format_is_refused_by_its_number_and_one_without_a_format_is_not) {
  {
    const auto lock = FolderLock::claim(root(), clock_);
    ASSERT_TRUE(lock) << lock.error().to_string();
    EXPECT_EQ(parse_json(*read_file(root() / "lock.json"))->at("format"), 1);
  }
  ASSERT_TRUE(write_file(root() / "lock.json", R"({"format":9,"pid":7})"));
  for (const uint64_t type : {kExt4, kNfs}) {
    const auto lock = FolderLock::claim(root(), clock_, of(type, "mine"));
    ASSERT_FALSE(lock);
    EXPECT_THAT(lock.error().to_string(), HasSubstr("lock.json: is of format 9; this program reads format 1"));
  }
  ASSERT_TRUE(write_file(root() / "lock.json", R"({"pid":7})"));
  EXPECT_TRUE(FolderLock::claim(root(), clock_, of(kExt4, "mine")));
}

TEST_F(FolderLockTest, a_pipe_in_the_place_of_the_record_is_waited_for_by_nobody) {
  for (const uint64_t type : {kExt4, kNfs}) {
    ASSERT_EQ(::mkfifo((root() / "lock.json").c_str(), 0600), 0);
    EXPECT_FALSE(lock_holder_of(root()));
    EXPECT_TRUE(FolderLock::claim(root(), clock_, of(type, "mine")));
  }
}

TEST_F(FolderLockTest, file_systems_of_several_machines_are_known) {
  EXPECT_TRUE(may_lock_one_machine_alone(kNfs));
  EXPECT_TRUE(may_lock_one_machine_alone(0xFE534D42));
  EXPECT_FALSE(may_lock_one_machine_alone(kExt4));
  EXPECT_FALSE(may_lock_one_machine_alone(0x01021994)) << "tmpfs";
}

}  // namespace
}  // namespace tandem
