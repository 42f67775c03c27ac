// Trajectories on disk.
#include "rollout/books/trajectory.h"

#include <gtest/gtest.h>
#include <unistd.h>

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
  fs::rename(folder / "here", folder / "there");

  const auto read = store->read(trajectory.key);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, trajectory);
  auto moved = TrajectoryStore::open_to_read(folder / "there");
  ASSERT_TRUE(moved && moved->contains(trajectory.key));
  EXPECT_EQ(*moved->read(trajectory.key), trajectory);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::rollout
