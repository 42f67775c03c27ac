// What a run takes of a machine.
#include "launch/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(Resources, memory_counts_every_rollout_and_what_lies_beside_models) {
  run::RunConfig config;
  config.rollout.workers = 3;
  const Json memory = {{"trainer", {{"masters and gradients", 4 * kGiB}, {"moments", 2 * kGiB}}},
                       {"rollout (each)", {{"weights, live", kGiB}, {"keys and values", kGiB}}}};
  const uint64_t models = (6 + 3 * 2) * kGiB;
  const uint64_t without = resources_of(config, Json::object(), 0).memory_bytes;
  EXPECT_GE(without, kGiB);
  const uint64_t all = resources_of(config, memory, 0).memory_bytes;
  EXPECT_GE(all - without, models);
  EXPECT_LE(all - without, models + models / 8);
  EXPECT_EQ(all % (256 << 20), 0u);
  config.run.relays = 2;
  Json with_relays = memory;
  with_relays["relay (each)"] = {{"version that comes", kGiB}};
  EXPECT_GE(resources_of(config, with_relays, 0).memory_bytes - all, 2 * kGiB);
  config.run.relays = 0;
  config.env.threads += 4;
  EXPECT_GT(resources_of(config, memory, 0).memory_bytes, all);
}

TEST(Resources, cores_are_those_asked_for_or_those_of_the_config) {
  run::RunConfig config;
  EXPECT_EQ(resources_of(config, Json::object(), 0).cores, kDefaultCores);
  EXPECT_EQ(resources_of(config, Json::object(), 5).cores, 5);
  config.trainer.threads = 6;
  EXPECT_EQ(resources_of(config, Json::object(), 0).cores, 6);
  config.rollout.workers = 4;
  config.rollout.threads = 3;
  EXPECT_EQ(resources_of(config, Json::object(), 0).cores, 12);
  EXPECT_EQ(resources_of(config, Json::object(), 2).cores, 2);
}

TEST(Resources, threads_that_the_config_leaves_open_are_those_of_the_job) {
  run::RunConfig config;
  config.rollout.workers = 2;
  EXPECT_THAT(thread_overrides(config, 8), ElementsAre("trainer.threads=8", "rollout.threads=4"));
  EXPECT_THAT(thread_overrides(config, 1), ElementsAre("trainer.threads=1", "rollout.threads=1"));
  config.trainer.threads = 3;
  config.rollout.threads = 1;
  EXPECT_THAT(thread_overrides(config, 8), IsEmpty());
}

}  // namespace
}  // namespace tandem::launch
