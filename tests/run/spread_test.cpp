#include "run/spread.h"

#include <gmock/gmock.h>

#include "run/topology.h"

namespace tandem::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunConfig on_hosts(int hosts, int workers) {
  RunConfig config;
  for (int i = 1; i <= hosts; ++i) config.run.hosts.push_back("tcp://10.0.0." + std::to_string(i) + ":7070");
  config.run.key = "key";
  config.rollout.workers = workers;
  return config;
}

TEST(Spread, equal_hosts_have_equal_shares_with_an_environment_server_beside_the_rollouts) {
  RunConfig config = on_hosts(3, 4);
  config.trainer.ranks = 2;
  EXPECT_THAT(topology_of(config)->lines(),
              ElementsAre("10.0.0.1:7070, cpu: env-0, rollout-0, rollout-3", "10.0.0.2:7070, cpu: env-1, rollout-1",
                          "10.0.0.3:7070, cpu: env-2, rollout-2", "local, cpu: coordinator-0, trainer-0, trainer-1"));
  config = on_hosts(3, 1);
  EXPECT_THAT(topology_of(config)->lines(),
              ElementsAre("10.0.0.1:7070, cpu: env-0, rollout-0", "local, cpu: coordinator-0, trainer-0"))
      << "a host without a rollout has nothing";
}

TEST(Spread, the_topology_of_the_config_says_what_is_where) {
  RunConfig config = on_hosts(2, 3);
  config.run.topology = {"tcp://10.0.0.2:7070 rollout=3", "local env=2"};
  EXPECT_THAT(topology_of(config)->lines(), ElementsAre("10.0.0.2:7070, cpu: rollout-0, rollout-1, rollout-2",
                                                        "local, cpu: coordinator-0, trainer-0, env-0, env-1"));
  EXPECT_TRUE(check_topology(config));
}

TEST(Spread, what_a_topology_cannot_say_is_refused_with_the_entry) {
  RunConfig config = on_hosts(2, 2);
  const auto refusal = [&](const std::vector<std::string>& topology) {
    config.run.topology = topology;
    return check_topology(config).to_string();
  };
  const std::string a = "tcp://10.0.0.1:7070", b = "tcp://10.0.0.2:7070";
  EXPECT_THAT(refusal({a + " rollout=1 env=1", b + " trainer=1"}), HasSubstr("trainer cannot be placed"));
  EXPECT_THAT(refusal({"tcp://10.0.0.9:7070 rollout=2 env=1"}), HasSubstr("tcp://10.0.0.9:7070 is not in run.hosts"));
  EXPECT_THAT(refusal({a + " rollout=1 rollout=1"}), HasSubstr("rollout is said twice"));
  EXPECT_THAT(refusal({a + " rollout=2 env=1", a}), HasSubstr("the host is named twice"));
  for (const char* number : {"rollout=", "rollout=-1", "rollout=2x", "rollout", "rollout=999"})
    EXPECT_THAT(refusal({a + " " + number}), HasSubstr("needs a number from 0 to 256")) << number;
  EXPECT_THAT(refusal({a + " rollout=1 env=1"}), HasSubstr("it places 1 rollouts, and rollout.workers is 2"));
  EXPECT_THAT(refusal({a + " rollout=2"}), HasSubstr("one environment server at least"));
  EXPECT_THAT(refusal({" "}), HasSubstr("names no host"));
}

}  // namespace
}  // namespace tandem::run
