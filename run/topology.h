// The processes of a run with role, rank, host and device, as a function of the config.
//
// The only place that decides what is started where. The supervisor starts these processes, and they are the first
// entries of the run's directory.
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
  // The address of a server that is running already, such as one of env.hosts; the run starts all others.
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

// kInvalid for an invalid address in env.hosts, or an impossible run.topology.
Result<Topology> topology_of(const RunConfig& config);

// The initial directory of the run: addresses that are known before peers introduce themselves. Epochs are unknown (0).
Result<wire::Directory> directory_of(const Topology& topology, const Lines& lines);

}  // namespace tandem::run
