#include "rollout/members.h"

namespace tandem::rollout {

Result<Members::Joined> Members::join(const Introduction& introduction, Time now, double unix_seconds) {
  const wire::Peer& peer = introduction.peer;
  const auto found = members_.find(peer);
  if (found != members_.end() && introduction.epoch < found->second.epoch) return Joined::kOutdated;

  const wire::Directory::Entry* listed = directory_.find(peer);
  if (listed == nullptr) listed = topology_.find(peer);
  if (!introduction.address.empty() || listed != nullptr) {
    wire::Directory::Entry entry{
        .address = introduction.address.empty() ? listed->address : TRY(wire::Address::parse(introduction.address)),
        .host = introduction.host.empty() && listed != nullptr ? listed->host : introduction.host,
        .epoch = introduction.epoch};
    TRY(directory_.put(peer, std::move(entry)));
  }
  const bool again = found != members_.end() && found->second.epoch == introduction.epoch && !found->second.lost;
  Member member;
  member.pid = introduction.pid;
  member.epoch = introduction.epoch;
  member.last_seen = now;
  member.since = unix_seconds;
  members_.insert_or_assign(peer, std::move(member));
  return again ? Joined::kAgain : Joined::kNew;
}

Members::Member* Members::hear(const wire::Peer& peer, uint64_t epoch, Time now) {
  const auto found = members_.find(peer);
  if (found == members_.end() || found->second.epoch != epoch || found->second.lost) return nullptr;
  found->second.last_seen = now;
  return &found->second;
}

void Members::leave(const wire::Peer& peer) {
  directory_.remove(peer);
  if (const auto found = members_.find(peer); found != members_.end()) found->second.has_left = true;
}

std::vector<wire::Peer> Members::lose_silent(Time now, Duration limit) {
  std::erase_if(members_,
                [&](const auto& entry) { return entry.second.has_left && now - entry.second.last_seen >= limit; });
  std::vector<wire::Peer> silent;
  for (auto& [peer, member] : members_) {
    if (member.lost || now - member.last_seen < limit) continue;
    member.lost = true;
    if (topology_.find(peer) == nullptr) directory_.remove(peer);
    silent.push_back(peer);
  }
  return silent;
}

Json Members::report(Time now) const {
  Json roles = Json::object();
  for (const auto& [peer, member] : members_) {
    roles[to_string(peer)] = {{"role", std::string(to_string(peer.role))},
                              {"pid", member.pid},
                              {"epoch", member.epoch},
                              {"lost", member.lost},
                              {"since", member.since},
                              {"silent", to_seconds(now - member.last_seen)},
                              {"doing", member.doing},
                              {"metrics", member.metrics}};
  }
  return roles;
}

}  // namespace tandem::rollout
