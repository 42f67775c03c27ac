// Which upstreams have computed the beginning of a prompt not long ago, so that it is sent where its pages are.
//
// A prompt is a chain of hashes, each over all of it up to there: of whole messages, and of pieces of long ones. What
// was touched least recently goes first. What an upstream has let go of is not known: a hit is a guess, and costs
// nothing but time where it is wrong.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::gateway {

class PrefixMap {
 public:
  explicit PrefixMap(size_t most_hashes) : most_(most_hashes) {}

  // By upstream: how many hashes of the chain it has, from the first one on.
  std::vector<size_t> matches(std::span<const uint64_t> chain, size_t upstreams) const;
  // `upstream`, below 64, has them now.
  void add(std::span<const uint64_t> chain, size_t upstream);
  // It has none any more.
  void forget(size_t upstream);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t upstreams = 0;  // a bit each
    std::list<uint64_t>::iterator place;
  };
  size_t most_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::list<uint64_t> order_;  // the one that was touched last at the end
};

// Makes a chain of the parts of a prompt; those of different salts have nothing in common.
class PrefixChain {
 public:
  static constexpr size_t kPiece = 1024;       // bytes
  static constexpr size_t kMostHashes = 2048;  // what is beyond is not told apart

  explicit PrefixChain(std::string_view salt);
  void add(std::string_view part);
  std::vector<uint64_t> take() { return std::move(hashes_); }

 private:
  uint64_t last_;
  std::vector<uint64_t> hashes_;
};

}  // namespace tandem::gateway
