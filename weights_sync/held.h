// The version of the weights that a receiver holds in host memory, and how it becomes another: bytes that come are
// whole weights, or a delta on what is held.
//
//   manifest -> begin -> a Receiver for its chunks -> complete -> check: the digest of every part
//
// After a failure it holds nothing, and asks for the weights whole. Several deltas may be completed before one check.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <optional>

#include "base/buffer.h"
#include "weights_sync/history.h"

namespace tandem::weights_sync {

class Held {
 public:
  Held(Blocks blocks, std::string format)
      : blocks_(std::move(blocks)), format_(std::move(format)), bytes_(blocks_.bytes()) {}

  // Holds a copy of these: blocks().bytes() bytes.
  void hold(uint64_t version, std::span<const std::byte> wire, kernels::ThreadPool& threads);

  const Blocks& blocks() const { return blocks_; }
  const Wanted& holds() const { return holds_; }
  std::span<const std::byte> bytes() const { return {bytes_.data(), bytes_.size()}; }

  // Where the bytes of a manifest's object go until they are complete. kInvalid where it cannot be taken: another
  // format, another size, a delta on what is not held, digests of other parts. The Receiver must not outlive this.
  Result<Receiver> begin(Manifest manifest);
  // All bytes of `manifest`, the last that was begun, have come: it is applied. kCorrupt where they are no such delta.
  Status complete(const Manifest& manifest, kernels::ThreadPool& threads);
  // Whether the bytes are those of holds(), by the digest of every part: kCorrupt names one, and nothing is held.
  Status check(kernels::ThreadPool& threads);
  void let_go() { holds_ = {}; }

 private:
  Blocks blocks_;
  std::string format_;
  Buffer<std::byte> bytes_;
  std::vector<std::byte> delta_;  // as it comes
  std::vector<Digest> parts_;     // of holds_
  Wanted holds_;
};

}  // namespace tandem::weights_sync
