// A delta between two versions of the weights: for each changed element of the quantised bytes, its position and the
// difference of its codes.
//
// At the learning rates of reinforcement learning few codes change from step to step, and most of those by one: a
// delta takes one to two bytes for each (docs/weights.md has the encoding). Differences are modulo the size of an
// element, so deltas are exact, and those of consecutive versions add up without the weights at hand.
//
// Thread safety: a value; const methods from any thread, but each ThreadPool from one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/threads.h"
#include "weights_sync/blocks.h"

namespace tandem::weights_sync {

// The changes of one block. Where many elements changed there are no positions, and `differences` has all elements.
struct BlockDelta {
  std::vector<uint32_t> positions;    // rising
  std::vector<uint32_t> differences;  // new - old, modulo 2^(8 * element_bytes)
  bool every = false;                 // one for each element
  bool changes() const { return !differences.empty(); }
  friend bool operator==(const BlockDelta&, const BlockDelta&) = default;
};

// `before` and `after` are the bytes of the block.
BlockDelta difference(const Block& block, std::span<const std::byte> before, std::span<const std::byte> after);
void apply(const Block& block, const BlockDelta& delta, std::span<std::byte> bytes);
// First the one, then the other.
BlockDelta fold(const Block& block, const BlockDelta& first, const BlockDelta& second);

std::vector<std::byte> encode(const Block& block, const BlockDelta& delta);
// kCorrupt where these are not the bytes of a delta of such a block. Takes memory for one block at most.
Result<BlockDelta> decode(const Block& block, std::span<const std::byte> bytes);

// A delta of all blocks, encoded. What did not change is not in it.
class Delta {
 public:
  Delta(uint64_t base, uint64_t version) : base_(base), version_(version) {}
  // kCorrupt where these bytes are no delta of such weights; what they say is checked again block by block.
  static Result<Delta> read(const Blocks& blocks, std::span<const std::byte> bytes);
  std::vector<std::byte> write(const Blocks& blocks) const;

  uint64_t base() const { return base_; }
  uint64_t version() const { return version_; }
  // Adds the blocks in order; each once.
  void add(uint32_t block, std::vector<std::byte> encoded) { blocks_.push_back({block, std::move(encoded)}); }
  // About what `write` gives.
  size_t bytes() const;

  // Changes `wire`, which holds the base; after kCorrupt it holds neither version.
  Status apply(const Blocks& blocks, std::span<std::byte> wire, kernels::ThreadPool& threads) const;
  // This one and `next`, whose base is this one's version, as one.
  Result<Delta> folded_with(const Delta& next, const Blocks& blocks, kernels::ThreadPool& threads) const;

 private:
  struct Encoded {
    uint32_t block = 0;
    std::vector<std::byte> bytes;
  };
  uint64_t base_ = 0, version_ = 0;
  std::vector<Encoded> blocks_;
};

}  // namespace tandem::weights_sync
