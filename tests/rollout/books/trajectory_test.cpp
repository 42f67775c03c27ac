// Trajectories on disk.
#include "rollout/books/trajectory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "tests/within.h"

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

Trajectory with_routes(uint32_t experts) {
  Trajectory trajectory{.key = {.episode = 3, .attempt = 1}};
  trajectory.routes.shape = {.layers = 2, .top_k = 2, .experts = experts};
  trajectory.append(std::vector<int32_t>{1, 2});
  trajectory.append_sampled(7, -0.5f, 4);
  const size_t width = trajectory.routes.shape.row_bytes();
  std::vector<uint8_t> rows(2 * width);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t at = 0; at < 4; ++at)
      trajectory.routes.shape.set(std::span(rows).subspan(row * width, width), at,
                                  static_cast<uint32_t>(at + row) * (experts - 1) / 4);
  }
  trajectory.append_routes(0, rows);
  trajectory.begin_segment();
  trajectory.append(std::vector<int32_t>{1});
  trajectory.append_sampled(9, -1, 5);
  // A place that is known stays as it is.
  const std::vector<uint8_t> later(rows.begin() + static_cast<ptrdiff_t>(width), rows.end());
  trajectory.append_routes(0, later);
  trajectory.append_routes(0, std::vector<uint8_t>(width, 0));
  return trajectory;
}

TEST(TrajectoryStore, gives_back_routes_of_one_byte_and_of_two) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-routes-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  for (const uint32_t experts : {8u, 256u, 257u, 4096u}) {
    const Trajectory trajectory = with_routes(experts);
    EXPECT_EQ(trajectory.routes.recorded, (std::vector<uint8_t>{1, 1, 0, 1, 0}));
    EXPECT_EQ(trajectory.routes.shape.id(trajectory.routes.row(1), 3), experts - 1);
    EXPECT_EQ(trajectory.routes.shape.id(trajectory.routes.row(3), 3), experts - 1) << "of the first record";
    EXPECT_EQ(trajectory.routes.ids.size(), 5u * 4 * (experts <= 256 ? 1 : 2));
    auto store = TrajectoryStore::open(folder);
    ASSERT_TRUE(store && store->append(trajectory));
    const auto read = store->read(trajectory.key);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(*read, trajectory);
    EXPECT_EQ(*TrajectoryStore::open_to_read(folder)->read(trajectory.key), trajectory) << "of a new index";
  }
  fs::remove_all(folder);
}

TEST(TrajectoryStore, routes_to_experts_that_there_are_not_are_damage) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-no-experts-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  auto store = TrajectoryStore::open(folder);
  ASSERT_TRUE(store);
  const auto refuses = [&](const auto& spoil) {
    Trajectory trajectory = with_routes(8);
    spoil(trajectory.routes);
    EXPECT_TRUE(store->append(trajectory));
    const auto read = store->read(trajectory.key);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), Code::kCorrupt) << read.error().to_string();
  };
  refuses([](ExpertRoutes& routes) { routes.ids[0] = 8; });
  refuses([](ExpertRoutes& routes) { routes.ids[1] = routes.ids[0]; });
  refuses([](ExpertRoutes& routes) { routes.recorded[0] = 2; });
  refuses([](ExpertRoutes& routes) { routes.shape.layers = 3; });
  refuses([](ExpertRoutes& routes) { routes.shape.experts = 300; });
  refuses([](ExpertRoutes& routes) { routes.shape.experts = 1; });
  refuses([](ExpertRoutes& routes) { routes.shape.layers = kMostRouteLayers + 1; });
  fs::remove_all(folder);
}

Trajectory with_kept_tokens(bool routes) {
  Trajectory trajectory = routes ? with_routes(8) : Trajectory{.key = {.episode = 5, .attempt = 0}};
  trajectory.kept.vocabulary = 50;
  trajectory.kept.resize(trajectory.tokens.size());
  trajectory.append(std::vector<int32_t>{1, 2});
  trajectory.append_sampled(7, -0.5f, 4, std::vector<int32_t>{3, 7, 49});
  trajectory.append_sampled(8, -0.5f, 4);
  trajectory.append(std::vector<int32_t>{1});
  trajectory.append_sampled(0, 0, 4, std::vector<int32_t>{0});
  return trajectory;
}

TEST(TrajectoryStore, gives_back_kept_tokens_with_and_without_routes) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-kept-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  for (const bool routes : {false, true}) {
    const Trajectory trajectory = with_kept_tokens(routes);
    auto store = TrajectoryStore::open(folder);
    ASSERT_TRUE(store && store->append(trajectory));
    EXPECT_EQ(*TrajectoryStore::open_to_read(folder)->read(trajectory.key), trajectory) << "of a new index";
    EXPECT_NE(read_file(folder / "episodes.log")->find("\"format\":6"), std::string::npos);
  }
  fs::remove_all(folder);
}

TEST(TrajectoryMessage, has_kept_tokens_with_and_without_routes_and_says_where_they_are_damaged) {
  zmq::context_t context;
  auto listener = wire::Socket::listen(context, "tcp://127.0.0.1:*", {.sender = "trainer-0", .epoch = 1, .run = 7});
  ASSERT_TRUE(listener);
  auto sender = wire::Socket::connect(context, listener->address(), {.sender = "rollout-0", .epoch = 1, .run = 7});
  ASSERT_TRUE(sender);
  const auto sent = [&](const Trajectory& trajectory) -> Result<Trajectory> {
    std::optional<wire::Incoming> came;
    const auto send = [&] {
      wire::Outgoing message;
      write_trajectory(trajectory, message.body().initTrajectory(), message);
      return sender->send("", message).ok();
    };
    EXPECT_TRUE(within(30s, send));
    EXPECT_TRUE(within(30s, [&] { return (came = listener->receive()).has_value(); }));
    return read_trajectory(came->body().getTrajectory(), *came);
  };
  for (const bool routes : {false, true}) {
    Trajectory trajectory = with_kept_tokens(routes);
    if (!routes) trajectory.hint = {.at = 1, .replaced = 0, .tokens = {30, 31}};
    const auto came = sent(trajectory);
    ASSERT_TRUE(came) << came.error().to_string();
    EXPECT_EQ(*came, trajectory);
    Trajectory other = trajectory;
    other.kept.ids.back() += 1;  // no set of its token
    const auto refused = sent(other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kCorrupt);
  }
}

TEST(TrajectoryStore, gives_back_hints_and_those_that_do_not_lie_in_the_prompt_are_damage) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-hints-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  auto store = TrajectoryStore::open(folder);
  ASSERT_TRUE(store);
  Trajectory trajectory = with_kept_tokens(false);
  trajectory.hint = {.at = 0, .replaced = 1, .tokens = {30, 31}};
  ASSERT_TRUE(store->append(trajectory));
  EXPECT_EQ(*TrajectoryStore::open_to_read(folder)->read(trajectory.key), trajectory) << "of a new index";
  EXPECT_NE(read_file(folder / "episodes.log")->find("\"format\":7"), std::string::npos);
  trajectory.hint.replaced = 2;  // of two: nothing of the prompt is left behind it
  ASSERT_TRUE(store->append(trajectory));
  const auto read = store->read(trajectory.key);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kCorrupt) << read.error().to_string();
  EXPECT_NE(read.error().message().find("the hint of episode 5 does not fit its prompt"), std::string::npos);
  fs::remove_all(folder);
}

TEST(TrajectoryStore, kept_tokens_without_the_token_itself_are_damage) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-not-kept-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  auto store = TrajectoryStore::open(folder);
  ASSERT_TRUE(store);
  const auto refuses = [&](const auto& spoil) {
    Trajectory trajectory = with_kept_tokens(false);
    spoil(trajectory);
    EXPECT_TRUE(store->append(trajectory));
    const auto read = store->read(trajectory.key);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), Code::kCorrupt) << read.error().to_string();
  };
  refuses([](Trajectory& t) { t.tokens[2] = 8; });
  refuses([](Trajectory& t) { t.kept.vocabulary = 49; });
  refuses([](Trajectory& t) { t.kept.counts[4] = 1, t.kept.ids.push_back(4); });
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
