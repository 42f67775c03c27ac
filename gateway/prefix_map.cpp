#include "gateway/prefix_map.h"

#include <functional>

namespace tandem::gateway {

std::vector<size_t> PrefixMap::matches(std::span<const uint64_t> chain, size_t upstreams) const {
  std::vector<size_t> lengths(upstreams, 0);
  uint64_t left = upstreams >= 64 ? ~uint64_t{0} : (uint64_t{1} << upstreams) - 1;
  for (const uint64_t hash : chain) {
    const auto found = entries_.find(hash);
    left &= found == entries_.end() ? 0 : found->second.upstreams;
    if (left == 0) break;
    for (size_t i = 0; i < upstreams; ++i) lengths[i] += left >> i & 1;
  }
  return lengths;
}

void PrefixMap::add(std::span<const uint64_t> chain, size_t upstream) {
  // The beginning is touched last: it goes after all that stands on it.
  for (size_t i = chain.size(); i-- > 0;) {
    const uint64_t hash = chain[i];
    auto [one, fresh] = entries_.try_emplace(hash);
    if (!fresh) order_.erase(one->second.place);
    one->second.place = order_.insert(order_.end(), hash);
    one->second.upstreams |= uint64_t{1} << upstream;
  }
  while (entries_.size() > most_) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
}

void PrefixMap::forget(size_t upstream) {
  const uint64_t bit = uint64_t{1} << upstream;
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto one = next++;
    one->second.upstreams &= ~bit;
    if (one->second.upstreams != 0) continue;
    order_.erase(one->second.place);
    entries_.erase(one);
  }
}

PrefixChain::PrefixChain(std::string_view salt) : last_(std::hash<std::string_view>{}(salt)) {}

void PrefixChain::add(std::string_view part) {
  do {
    if (hashes_.size() >= kMostHashes) return;
    const std::string_view piece = part.substr(0, kPiece);
    part.remove_prefix(piece.size());
    last_ = last_ * 0x9E3779B97F4A7C15 + std::hash<std::string_view>{}(piece);
    last_ ^= last_ >> 29;
    hashes_.push_back(last_);
  } while (!part.empty());
}

}  // namespace tandem::gateway
