#include "wire/directory.h"

#include <fmt/format.h>

namespace tandem::wire {

Result<bool> Directory::put(const Peer& peer, Entry entry) {
  const auto found = entries_.find(peer);
  if (found != entries_.end() && found->second == entry) return false;
  if (found == entries_.end() && entries_.size() >= kMaxPeers)
    return fail(Status::exhausted(fmt::format("a run has {} peers at most", kMaxPeers)));
  entries_.insert_or_assign(peer, std::move(entry));
  ++version_;
  return true;
}

bool Directory::remove(const Peer& peer) {
  if (entries_.erase(peer) == 0) return false;
  ++version_;
  return true;
}

const Directory::Entry* Directory::find(const Peer& peer) const {
  const auto found = entries_.find(peer);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<Peer> Directory::all(Role role) const {
  std::vector<Peer> peers;
  for (auto it = entries_.lower_bound({role, 0}); it != entries_.end() && it->first.role == role; ++it)
    peers.push_back(it->first);
  return peers;
}

std::optional<Peer> Directory::at(const std::string& address) const {
  for (const auto& [peer, entry] : entries_) {
    if (entry.address.text() == address) return peer;
  }
  return std::nullopt;
}

void Directory::write(Peers::Builder out) const {
  out.setVersion(version_);
  auto list = out.initPeers(static_cast<unsigned>(entries_.size()));
  unsigned i = 0;
  for (const auto& [peer, entry] : entries_) {
    auto each = list[i++];
    each.setPeer(to_string(peer));
    each.setAddress(entry.address.text());
    each.setHost(entry.host);
    each.setEpoch(entry.epoch);
  }
}

Result<Directory> Directory::read(Peers::Reader in) {
  Directory directory;
  for (const auto each : in.getPeers()) {
    const Peer peer = TRY(parse_peer(each.getPeer().cStr()));
    Entry entry{
        .address = TRY(Address::parse(each.getAddress().cStr())), .host = each.getHost(), .epoch = each.getEpoch()};
    if (directory.find(peer) != nullptr)
      return fail(Status::invalid(fmt::format("{} is listed twice", to_string(peer))));
    TRY(directory.put(peer, std::move(entry)));
  }
  directory.version_ = in.getVersion();
  return directory;
}

}  // namespace tandem::wire
