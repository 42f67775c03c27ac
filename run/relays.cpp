#include "run/relays.h"

#include <algorithm>
#include <vector>

namespace tandem::run {
namespace {

using wire::Role;

struct Seat {
  int rank = 0;
  int sends_to = 0;
  std::string host;
};

std::vector<Seat> seats_of(const Topology& topology, int fanout) {
  std::vector<Seat> seats;
  const int relays = topology.count(Role::kRelay);
  for (const Place& place : topology.places) {
    if (place.peer.role != Role::kRelay) continue;
    const int rank = place.peer.rank;
    seats.push_back(
        {.rank = rank, .sends_to = std::clamp(relays - (rank + 1) * fanout, 0, fanout), .host = place.host});
  }
  return seats;
}

// Those that a rollout of `host` may have.
std::vector<Seat*> near_to(const std::string& host, std::vector<Seat>& seats) {
  std::vector<Seat*> near, all;
  for (Seat& seat : seats) {
    all.push_back(&seat);
    if (seat.host == host) near.push_back(&seat);
  }
  return near.empty() ? all : near;
}

wire::Peer relay(int rank) { return {Role::kRelay, rank}; }

}  // namespace

std::optional<wire::Peer> relay_above(const Topology& topology, int fanout, const wire::Peer& peer,
                                      const std::string& host) {
  if (peer.role == Role::kRelay) {
    if (peer.rank < fanout) return std::nullopt;
    return relay(peer.rank / fanout - 1);
  }
  auto seats = seats_of(topology, fanout);
  if (peer.role != Role::kRollout || seats.empty()) return std::nullopt;
  for (const Place& place : topology.places) {
    if (place.peer.role != Role::kRollout) continue;
    const auto near = near_to(place.host, seats);
    Seat& chosen = **std::min_element(near.begin(), near.end(), [](const Seat* one, const Seat* other) {
      return std::pair(one->sends_to, one->rank) < std::pair(other->sends_to, other->rank);
    });
    if (place.peer == peer) return relay(chosen.rank);
    ++chosen.sends_to;
  }
  const auto near = near_to(host, seats);
  return relay(near[static_cast<size_t>(peer.rank) % near.size()]->rank);
}

}  // namespace tandem::run
