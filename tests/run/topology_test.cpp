#include "run/topology.h"

#include <gmock/gmock.h>

#include "run/devices.h"
#include "tests/run/temporary_run.h"

namespace tandem::run {
namespace {

using testing::ElementsAre;
using wire::Role;

class TopologyTest : public TemporaryRun {};

TEST_F(TopologyTest, says_of_every_process_what_it_is_and_where) {
  RunConfig config;
  config.rollout.workers = 2;
  config.env.hosts = {"tcp://10.0.0.5:7070", "local", "tcp://127.0.0.1:7070"};
  const auto topology = topology_of(config);
  ASSERT_TRUE(topology) << topology.error().to_string();
  std::vector<std::string> found, started;
  for (const Place& place : topology->places) (place.found_at ? found : started).push_back(to_string(place.peer));
  EXPECT_THAT(started, ElementsAre("coordinator-0", "env-1", "trainer-0", "rollout-0", "rollout-1"));
  EXPECT_THAT(found, ElementsAre("env-0", "env-2"));
  EXPECT_EQ(topology->find({Role::kEnv, 0})->found_at->text(), "tcp://10.0.0.5:7070");
  EXPECT_EQ(topology->find({Role::kEnv, 3}), nullptr);
  EXPECT_THAT(topology->lines(),
              ElementsAre("10.0.0.5, cpu: env-0 (there)",
                          "local, cpu: coordinator-0, env-1, env-2 (there), trainer-0, rollout-0, rollout-1"));
  EXPECT_EQ(topology->count(Role::kRollout), 2);

  config.trainer.ranks = 4;
  EXPECT_EQ(topology_of(config)->count(Role::kTrainer), 4);

  config.env.hosts = {"somewhere"};
  EXPECT_FALSE(topology_of(config));
}

// Sorted as text the tenth GPU would come before the second, and each rollout would sit on another one's.
TEST_F(TopologyTest, devices_are_dealt_out_in_the_order_in_which_they_are_named) {
  RunConfig config;
  config.device = "cpu:avx2";
  config.rollout.workers = 5;
  config.rollout.devices = {"cuda:2", "cuda:10", "cuda:1"};
  const auto devices = devices_of(config);
  ASSERT_TRUE(devices) << devices.error().to_string();
  std::vector<std::string> names;
  for (const auto& device : devices->rollouts) names.push_back(kernels::to_string(device));
  EXPECT_THAT(names, ElementsAre("cuda:2", "cuda:10", "cuda:1", "cuda:2", "cuda:10"));
  const auto topology = topology_of(config);
  ASSERT_TRUE(topology) << topology.error().to_string();
  for (int rank = 0; rank < 5; ++rank)
    EXPECT_EQ(topology->find({Role::kRollout, rank})->device, names[static_cast<size_t>(rank)]);
}

TEST_F(TopologyTest, the_directory_of_a_run_begins_with_it) {
  RunConfig config;
  config.env.hosts = {"tcp://10.0.0.5:7070", "local"};
  const auto layout = RunLayout::establish(dir());
  ASSERT_TRUE(layout);
  const auto lines = Lines::of(*layout);
  ASSERT_TRUE(lines) << lines.error().to_string();
  const auto directory = directory_of(*topology_of(config), *lines);
  ASSERT_TRUE(directory) << directory.error().to_string();
  EXPECT_THAT(directory->all(Role::kEnv), ElementsAre(wire::Peer{Role::kEnv, 0}, wire::Peer{Role::kEnv, 1}));
  EXPECT_EQ(directory->find({Role::kEnv, 0})->address.text(), "tcp://10.0.0.5:7070");
  EXPECT_EQ(directory->find({Role::kEnv, 1})->address, layout->address({Role::kEnv, 1}));
  EXPECT_EQ(directory->find({Role::kTrainer, 0})->epoch, 0u);
}

}  // namespace
}  // namespace tandem::run
