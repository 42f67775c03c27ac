// Trajectories on disk.
#include "rollout/books/trajectory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace tandem::rollout {
namespace {

TEST(TrajectoryStore, gives_back_what_it_stored_though_its_folder_is_moved_away) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-trajectories-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  auto store = TrajectoryStore::open(folder / "here");
  ASSERT_TRUE(store) << store.error().to_string();
  Trajectory trajectory{.key = {.episode = 3, .attempt = 1}};
  trajectory.append(std::vector<int32_t>{1, 2});
  trajectory.append_sampled(7, -0.5f, 4);
  ASSERT_TRUE(store->append(trajectory));
  Trajectory summed_up = trajectory;
  summed_up.key.episode = 4;
  summed_up.begin_segment();
  summed_up.append(std::vector<int32_t>{1, 2, 9});
  ASSERT_TRUE(store->append(summed_up));
  fs::rename(folder / "here", folder / "there");

  const auto read = store->read(trajectory.key);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, trajectory);
  auto moved = TrajectoryStore::open_to_read(folder / "there");
  ASSERT_TRUE(moved && moved->contains(trajectory.key));
  EXPECT_EQ(*moved->read(trajectory.key), trajectory);
  EXPECT_EQ(*moved->read(summed_up.key), summed_up);
  EXPECT_EQ(std::ranges::count(moved->read(summed_up.key)->last_tokens(), 9), 1);
  fs::remove_all(folder);
}

TEST(TrajectoryStore, segments_that_do_not_fit_the_tokens_are_damage) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-segments-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  uint64_t episode = 0;
  for (const std::vector<uint32_t>& segments :
       {std::vector<uint32_t>{0}, {3}, {2, 2}, {2, 1}, std::vector<uint32_t>(kMostSegments, 1)}) {
    Trajectory trajectory{.key = {.episode = ++episode, .attempt = 1}};
    trajectory.append(std::vector<int32_t>{1, 2, 3});
    trajectory.later_segments = segments;
    auto store = TrajectoryStore::open(folder);
    ASSERT_TRUE(store && store->append(trajectory));
    const auto read = store->read(trajectory.key);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), Code::kCorrupt);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::rollout
