// Which relay a rollout or a relay fetches weights from: a tree below the trainer, as a function of the topology.
//
// The trainer sends to relays 0 to fanout - 1, and relay i to those from (i + 1) * fanout on, `fanout` of them. Each
// rollout is given, in the order of ranks, to the relay that sends to the fewest so far, relays included: of its own
// host where that has some, else of all. So what one process sends does not grow with the number of rollouts.
//
// Pure.
#pragma once

#include <optional>
#include <string>

#include "run/topology.h"

namespace tandem::run {

// Nothing: `peer` asks the trainer. A rollout that the topology does not name, as one of a host that joined, is dealt
// out by its rank to the relays of `host`, or to all.
std::optional<wire::Peer> relay_above(const Topology& topology, int fanout, const wire::Peer& peer,
                                      const std::string& host);

}  // namespace tandem::run
