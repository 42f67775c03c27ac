// The tree of relays, as a function of the topology.
#include "run/relays.h"

#include <gmock/gmock.h>

#include <map>

namespace tandem::run {
namespace {

using testing::HasSubstr;
using wire::Peer;
using wire::Role;

RunConfig with_relays(int relays, int fanout, int workers) {
  RunConfig config;
  config.run.relays = relays;
  config.run.relay_fanout = fanout;
  config.rollout.workers = workers;
  return config;
}

std::string above(const RunConfig& config, const Peer& peer, const std::string& host = "local") {
  const auto relay = relay_above(*topology_of(config), config.run.relay_fanout, peer, host);
  return relay ? to_string(*relay) : "trainer";
}

TEST(Relays, without_any_everybody_asks_the_trainer) {
  const RunConfig config = with_relays(0, 4, 3);
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(above(config, {Role::kRollout, rank}), "trainer");
  EXPECT_EQ(topology_of(config)->count(Role::kRelay), 0);
}

TEST(Relays, form_a_tree_below_the_trainer_and_rollouts_are_dealt_to_those_that_send_to_the_fewest) {
  const RunConfig config = with_relays(2, 1, 3);
  EXPECT_EQ(above(config, {Role::kRelay, 0}), "trainer");
  EXPECT_EQ(above(config, {Role::kRelay, 1}), "relay-0");
  EXPECT_EQ(above(config, {Role::kRollout, 0}), "relay-1");
  EXPECT_EQ(above(config, {Role::kRollout, 1}), "relay-0");
  EXPECT_EQ(above(config, {Role::kRollout, 2}), "relay-1");
  EXPECT_EQ(above(config, {Role::kTrainer, 0}), "trainer");
  EXPECT_THAT(topology_of(config)->lines()[0], HasSubstr("trainer-0, relay-0, relay-1, rollout-0"));
}

TEST(Relays, nobody_sends_to_more_than_its_share_and_everybody_is_below_the_trainer) {
  for (int relays = 1; relays <= 23; ++relays) {
    for (int fanout = 1; fanout <= 6; ++fanout) {
      const RunConfig config = with_relays(relays, fanout, 40);
      const Topology topology = *topology_of(config);
      std::map<std::optional<Peer>, int> relays_of, all_of;
      for (const Place& place : topology.places) {
        if (place.peer.role != Role::kRelay && place.peer.role != Role::kRollout) continue;
        std::optional<Peer> at = place.peer;
        int steps = 0;
        while ((at = relay_above(topology, fanout, *at, "local"))) ASSERT_LE(++steps, relays + 1);
        const auto parent = relay_above(topology, fanout, place.peer, "local");
        if (place.peer.role == Role::kRelay) ++relays_of[parent];
        ++all_of[parent];
      }
      for (const auto& [parent, count] : relays_of) EXPECT_LE(count, fanout) << relays << " " << fanout;
      EXPECT_LE(all_of[std::nullopt], fanout);
      int most = 0, least = INT32_MAX;
      for (int rank = 0; rank < relays; ++rank) {
        most = std::max(most, all_of[Peer{Role::kRelay, rank}]);
        least = std::min(least, all_of[Peer{Role::kRelay, rank}]);
      }
      EXPECT_LE(most, std::max(least + 1, fanout)) << relays << " " << fanout;
    }
  }
}

TEST(Relays, a_rollout_has_a_relay_of_its_own_host_where_there_is_one) {
  RunConfig config = with_relays(3, 4, 5);
  const std::string a = "tcp://10.0.0.1:7070", b = "tcp://10.0.0.2:7070", c = "tcp://10.0.0.3:7070";
  config.run.hosts = {a, b, c};
  config.run.key = "key";
  config.run.topology = {a + " rollout=2 env=1 relay=1", b + " rollout=2 relay=2", c + " rollout=1"};
  const auto topology = topology_of(config);
  ASSERT_TRUE(topology) << topology.error().to_string();
  for (const Place& place : topology->places) {
    if (place.peer.role != Role::kRollout || place.host == "10.0.0.3:7070") continue;
    const auto relay = relay_above(*topology, 4, place.peer, place.host);
    ASSERT_TRUE(relay);
    EXPECT_EQ(topology->find(*relay)->host, place.host) << to_string(place.peer);
  }
  // Of a host that joined the run.
  EXPECT_EQ(topology->find(*relay_above(*topology, 4, {Role::kRollout, 9}, "10.0.0.1:7070"))->host, "10.0.0.1:7070");
  EXPECT_TRUE(relay_above(*topology, 4, {Role::kRollout, 9}, "10.0.0.9:7070"));

  config.run.topology.clear();
  EXPECT_EQ(topology_of(config)->count(Role::kRelay, "10.0.0.2:7070"), 1);
  config.run.topology = {a + " rollout=5 env=1 relay=2"};
  EXPECT_THAT(topology_of(config).error().to_string(), HasSubstr("it places 2 relays, and run.relays is 3"));
}

}  // namespace
}  // namespace tandem::run
