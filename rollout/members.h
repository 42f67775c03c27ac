// The members of a run, as its coordinator hears from them, and the run's directory.
//
// The directory begins with what the run's topology names. A peer that introduces itself is listed with the address
// that it says; one that leaves is not listed any more. A peer that falls silent stays listed where the topology names
// it, for its supervisor starts it again; one that joined by itself goes.
//
// Pure: time comes with what happens. Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "wire/directory.h"

namespace tandem::rollout {

struct Introduction {
  wire::Peer peer;
  uint64_t epoch = 0;
  int pid = 0;
  std::string address, host;  // may be empty: as the topology says
};

class Members {
 public:
  struct Member {
    int pid = 0;
    uint64_t epoch = 0;
    Time last_seen{};
    double since = 0;  // unix time of its introduction
    bool lost = false, has_left = false;
    std::string doing = "starting";
    Json metrics;
  };
  enum class Joined : uint8_t {
    kNew,       // it was not there, or is another life of it
    kAgain,     // nothing has changed
    kOutdated,  // a former life of one that is there: not heard
  };

  explicit Members(wire::Directory topology) : topology_(topology), directory_(std::move(topology)) {}

  // Adds or updates a member. kInvalid, without a change, for an invalid address; kExhausted where there are too many
  // peers.
  Result<Joined> join(const Introduction& introduction, Time now, double unix_seconds);
  // Returns the sender of a message; null where it must introduce itself first: it is unknown, has another epoch, or
  // was lost.
  Member* hear(const wire::Peer& peer, uint64_t epoch, Time now);
  // Removes the peer from the directory. It stays a member until it falls silent.
  void leave(const wire::Peer& peer);
  // Marks and returns members that have been silent for `limit`, were not lost before, and have not left.
  std::vector<wire::Peer> lose_silent(Time now, Duration limit);

  // {"rollout-1": {role, pid, epoch, lost, since, silent, doing, metrics}, ..}
  Json report(Time now) const;

  bool knows(const wire::Peer& peer) const { return members_.contains(peer); }
  const std::map<wire::Peer, Member>& all() const { return members_; }
  const wire::Directory& directory() const { return directory_; }

 private:
  const wire::Directory topology_;
  wire::Directory directory_;
  std::map<wire::Peer, Member> members_;
};

}  // namespace tandem::rollout
