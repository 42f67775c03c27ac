// The bytes of weights (model::Weights::wire) as blocks of elements: what deltas are made of, and what the digests of
// parts are taken over, by any number of threads with the same result.
//
// Thread safety: a value; const methods from any thread, but each ThreadPool from one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "kernels/threads.h"
#include "model/weights.h"

namespace tandem::weights_sync {

constexpr uint32_t kBlockElements = 1u << 20;

struct Block {
  uint32_t part = 0;   // of Blocks::parts
  uint64_t begin = 0;  // byte in the weights
  uint32_t elements = 0;
  uint32_t element_bytes = 0;  // 1, 2 or 4
  size_t bytes() const { return size_t{elements} * element_bytes; }
};

class Blocks {
 public:
  // `parts` in the order of the bytes, of which there are `bytes`.
  Blocks(std::vector<model::Weights::WirePart> parts, uint64_t bytes);
  static Blocks of(const model::Weights& weights) { return {weights.wire_parts(), weights.wire().size()}; }

  uint64_t bytes() const { return bytes_; }
  const std::vector<model::Weights::WirePart>& parts() const { return parts_; }
  // In the order of the bytes; none spans two parts.
  const std::vector<Block>& all() const { return blocks_; }

  // For each part the digest of the digests of its blocks. `wire` has bytes() bytes.
  std::vector<Digest> digests(std::span<const std::byte> wire, kernels::ThreadPool& threads) const;
  // The same of the digests of all blocks.
  std::vector<Digest> digests_of_parts(std::span<const Digest> of_blocks) const;
  // Whether a version has these digests: kCorrupt names the first part that has not.
  Status check(std::span<const Digest> expected, std::span<const Digest> found) const;

 private:
  std::vector<model::Weights::WirePart> parts_;
  std::vector<Block> blocks_;
  uint64_t bytes_ = 0;
};

// The digest of a version, by the digests of its parts: who holds weights with the same one holds the same bytes.
Digest digest_of_parts(std::span<const Digest> parts);

}  // namespace tandem::weights_sync
