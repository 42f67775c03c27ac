// The versions of the weights that a trainer hands out: the newest one whole, and what changed between those before it.
//
// Each version has a delta on the one before, and where its number is a multiple of 2^k one on the version 2^k
// before, so a receiver that is n versions behind needs O(log n) deltas. Together they take at most a part of the
// bytes of the weights: the oldest go first. Who cannot be served by deltas, or with fewer bytes than the weights have,
// is given the newest version whole.
//
// Thread safety: a History belongs to one thread; an Offer is read by any.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/buffer.h"
#include "weights_sync/delta.h"
#include "weights_sync/version.h"

namespace tandem::weights_sync {

// The weights that a receiver holds.
struct Wanted {
  bool holds = false;  // some version, which these are of
  uint64_t version = 0;
  Digest digest;  // digest_of_parts
};

// A version, whole or as a delta, ready to be sent.
struct Object {
  Manifest manifest;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};

class Offer {
 public:
  uint64_t newest() const { return newest_; }
  const Manifest& whole() const { return whole_->manifest; }
  size_t whole_bytes() const { return whole_->bytes.size(); }
  // The size of the delta from the version before, 0 where there is none.
  size_t delta_bytes() const;
  // The next step to the newest version for somebody who has this; null where it is the newest already.
  std::shared_ptr<const Object> next_for(const Wanted& wanted) const;
  // Null where there is no such object any more.
  std::shared_ptr<const Object> find(uint64_t base, uint64_t version) const;
  // All deltas there are, by base and version.
  const std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const Object>>& deltas() const { return deltas_; }

 private:
  friend class History;
  uint64_t newest_ = 0;
  std::shared_ptr<const Object> whole_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const Object>> deltas_;
  std::map<uint64_t, Digest> digests_;  // digest_of_parts, of each version that is the base of a delta
};

struct HistorySettings {
  bool deltas = true;
  double most_delta_bytes = 1;  // of all deltas together, in bytes of the weights
};

class History {
 public:
  // Begins with a version that nobody is sent a delta to.
  History(Blocks blocks, std::string format, HistorySettings settings)
      : blocks_(std::move(blocks)), format_(std::move(format)), settings_(settings) {}

  const Blocks& blocks() const { return blocks_; }
  // The next version, of blocks().bytes() bytes, which are copied. `version` is above the last one's.
  std::shared_ptr<const Offer> add(uint64_t version, std::span<const std::byte> wire, kernels::ThreadPool& threads);

 private:
  using Bytes = std::shared_ptr<Buffer<std::byte>>;
  void add_delta(Offer& offer, Delta delta);
  void fold(Offer& offer, kernels::ThreadPool& threads);
  void forget_oldest(Offer& offer) const;

  const Blocks blocks_;
  const std::string format_;
  const HistorySettings settings_;
  std::shared_ptr<const Offer> last_;
  Bytes newest_, before_;  // the second is written again once nobody reads it
};

}  // namespace tandem::weights_sync
