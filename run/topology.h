// Which processes a run has: of each its role, its rank, its host and its device. All from the config.
//
// The one place that says what is started where; the supervisor starts what it is told to, and the directory of the
// run begins with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/config.h"
#include "run/lines.h"
#include "wire/directory.h"

namespace tandem::run {

struct Place {
  wire::Peer peer;
  std::string host{kLocalHost};
  std::string device = "cpu";
  // Of a server that is there already, as those of env.hosts that serve many runs; the run starts all others.
  std::optional<wire::Address> found_at = {};
};

struct Topology {
  std::vector<Place> places;  // in the order in which they are started
  int count(wire::Role role) const;
  int count(wire::Role role, const std::string& host) const;  // on that host
  const Place* find(const wire::Peer& peer) const;            // null where the config names none such
  // For people: a line for each host and device, with the processes there.
  std::vector<std::string> lines() const;
};

// kInvalid where env.hosts names what is no address, or run.topology what cannot be.
Result<Topology> topology_of(const RunConfig& config);

// Where everybody can be reached once all are started, as far as it is known before they say so. Nobody's epoch is
// known yet.
Result<wire::Directory> directory_of(const Topology& topology, const Lines& lines);

}  // namespace tandem::run
