// The peers of a run: address, host and epoch of each.
//
// It changes during the run: a restarted role has a new epoch, environment servers join and leave. Every change
// increments the version, so that the newer of two copies is known.
//
// Thread safety: as any value.
// Invariants: 1. a peer is listed once; 2. version() grows with every change, and with nothing else.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "wire/address.h"
#include "wire/messages.capnp.h"
#include "wire/peer.h"

namespace tandem::wire {

class Directory {
 public:
  struct Entry {
    Address address;
    std::string host;    // the machine's name; "local" for the one that the run was started on
    uint64_t epoch = 0;  // 0: not known yet
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  static constexpr size_t kMaxPeers = 4096;

  // Adds the peer or replaces its entry; false where nothing changed. kExhausted at kMaxPeers.
  Result<bool> put(const Peer& peer, Entry entry);
  // False where it is not listed.
  bool remove(const Peer& peer);

  // Valid until the next change; null where the peer is not listed.
  const Entry* find(const Peer& peer) const;
  // In the order of ranks.
  std::vector<Peer> all(Role role) const;
  // The peer that can be reached at an address.
  std::optional<Peer> at(const std::string& address) const;
  uint64_t version() const { return version_; }

  void write(Peers::Builder out) const;
  // kInvalid, with the reason, for a message with invalid peers or addresses.
  static Result<Directory> read(Peers::Reader in);

  friend bool operator==(const Directory&, const Directory&) = default;

 private:
  std::map<Peer, Entry> entries_;
  uint64_t version_ = 0;
};

}  // namespace tandem::wire
