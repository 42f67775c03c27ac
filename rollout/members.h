// Who takes part in a run now, as its coordinator hears it, and where everybody is.
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

  // kInvalid, with nothing changed, for an address that is none; kExhausted where there are too many peers.
  Result<Joined> join(const Introduction& introduction, Time now, double unix_seconds);
  // The member that speaks; null where it must introduce itself first: it is a stranger, of another life, or was lost.
  Member* hear(const wire::Peer& peer, uint64_t epoch, Time now);
  // Takes it off the directory; it stays a member until it falls silent, and is forgotten then.
  void leave(const wire::Peer& peer);
  // Those that have been silent for `limit`, were not lost before, and have not left.
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
