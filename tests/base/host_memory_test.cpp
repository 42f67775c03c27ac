#include "base/host_memory.h"

#include <gmock/gmock.h>
#include <unistd.h>

namespace tandem {
namespace {

using testing::HasSubstr;

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    put("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:  1 kB\nMemAvailable:   4194304 kB\n");
    put("proc/self/cgroup", "0::/slurm/job_7/step\n");
  }
  void TearDown() override { fs::remove_all(root()); }
  static fs::path root() { return fs::temp_directory_path() / ("tandem-host-memory-" + std::to_string(::getpid())); }
  static void put(const std::string& path, const std::string& words) {
    fs::create_directories((root() / path).parent_path());
    ASSERT_TRUE(write_file(root() / path, words));
  }
  static MemoryFiles files() { return {.proc = root() / "proc", .groups = root() / "groups"}; }
};

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST_F(HostMemoryTest, without_a_control_group_it_is_that_of_the_machine) {
  const auto room = memory_room(files());
  EXPECT_EQ(room.free, 4 * kGiB);
  EXPECT_EQ(room.limit, 8 * kGiB);
  EXPECT_EQ(room.of, "this machine");
}

TEST_F(HostMemoryTest, the_narrowest_group_around_the_process_counts_and_pages_that_can_be_dropped_are_free) {
  put("groups/slurm/job_7/step/memory.max", "max\n");
  put("groups/slurm/job_7/memory.max", std::to_string(2 * kGiB) + "\n");
  put("groups/slurm/job_7/memory.current", std::to_string(kGiB + kGiB / 2) + "\n");
  put("groups/slurm/job_7/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\n");
  put("groups/slurm/memory.max", std::to_string(6 * kGiB) + "\n");
  const auto room = memory_room(files());
  EXPECT_EQ(room.limit, 2 * kGiB);
  EXPECT_EQ(room.free, kGiB + kGiB / 2);
  EXPECT_EQ(room.of, "the control group /slurm/job_7");
}

TEST_F(HostMemoryTest, groups_of_the_first_version_are_read_and_their_large_number_is_no_limit) {
  put("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
  put("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("groups/memory/job/memory.limit_in_bytes", std::to_string(kGiB) + "\n");
  put("groups/memory/job/memory.usage_in_bytes", std::to_string(kGiB / 4) + "\n");
  put("groups/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(memory_room(files()).limit, kGiB);
  EXPECT_EQ(memory_room(files()).free, kGiB - kGiB / 4);
  EXPECT_EQ(memory_kills(files()), 3u);
}

TEST_F(HostMemoryTest, kills_are_those_of_the_group_or_of_the_machine) {
  EXPECT_EQ(memory_kills(files()), 0u);
  put("proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
  EXPECT_EQ(memory_kills(files()), 5u);
  put("groups/slurm/job_7/step/memory.events", "low 0\noom 2\noom_kill 1\n");
  EXPECT_EQ(memory_kills(files()), 1u);
}

TEST_F(HostMemoryTest, what_is_not_enough_is_said_with_its_numbers) {
  const MemoryRoom room{.free = 2 * kGiB, .limit = 4 * kGiB, .of = "the control group /job"};
  EXPECT_EQ(memory_warning(2 * kGiB, kGiB, room, 0), "");
  EXPECT_THAT(memory_warning(3 * kGiB, kGiB, room, 0),
              HasSubstr("3.00 GiB are needed at most, and 2.00 GiB of 4.00 GiB are free (the control group /job)"));
  EXPECT_THAT(memory_warning(5 * kGiB, kGiB, room, 0), HasSubstr("the control group /job may have 4.00 GiB"));
  EXPECT_THAT(memory_warning(kGiB, kGiB, room, kGiB / 2), HasSubstr("each may have 0.50 GiB (ulimit -v)"));
  EXPECT_EQ(memory_warning(kGiB, kGiB, {}, 0), "") << "the kernel says nothing";
}

}  // namespace
}  // namespace tandem
