// Sums and copies among the ranks of a group, in an order of additions that is written down.
//
// Every rank calls the same operations in the same order with the same sizes; each call returns when this rank has what
// it asked for. A sum adds the ranks' elements in the order of ranks, ((v0 + v1) + v2) + ..., in fp32, and bf16 is
// rounded once, at the end. So all ranks get the same bits, whoever comes first, and they are those of one loop over
// the ranks: on machines without a GPU (local.h) and on GPUs (nccl.h) alike. Where a call says so, it adds them as a
// binary tree instead, (v0 + v1) + (v2 + v3): a sum of twice as many ranks, each with half of the terms, has the same
// bits then.
//
// Every call has a deadline. The first error of a group is its last: what was under way with the others is lost, the
// group is closed, and every later call returns the same error.
//
// Thread safety: none; one call at a time. Errors: kInvalid, sizes that no rank could mean, or that differ between
// ranks; kUnavailable names a rank that has left or died; kDeadline names one that has not answered in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "base/status.h"
#include "kernels/formats/bf16.h"

namespace tandem::collectives {

using kernels::bf16;

constexpr int kMostRanks = 256;

// The part of an array that one rank owns: elements [begin, begin + count).
struct Piece {
  size_t begin = 0, count = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // values = the sum over ranks of their values, in place. Memory of the group's kind, as below: of this process, or of
  // its GPU.
  virtual Status all_reduce(std::span<float> values, std::chrono::milliseconds deadline) = 0;
  virtual Status all_reduce(std::span<bf16> values, std::chrono::milliseconds deadline) = 0;

  // `part`, this rank's of ranks() equal parts of `values`, = the sum over ranks of that part. part.size() * ranks() is
  // values.size(); part may not lie in values.
  virtual Status reduce_scatter(std::span<const float> values, std::span<float> part,
                                std::chrono::milliseconds deadline) = 0;
  virtual Status reduce_scatter(std::span<const bf16> values, std::span<bf16> part,
                                std::chrono::milliseconds deadline) = 0;

  // all = the parts of rank 0, 1, ... one behind the other; all.size() is part.size() * ranks(). `part` may be its own
  // place in `all`.
  virtual Status all_gather(std::span<const std::byte> part, std::span<std::byte> all,
                            std::chrono::milliseconds deadline) = 0;

  // This rank's piece of `values` = the sum over ranks of that piece, added as a binary tree; all other elements are
  // left as they are. One piece a rank, none overlapping, the same on all ranks; ranks() is a power of two.
  virtual Status reduce_pieces(std::span<float> values, std::span<const Piece> pieces,
                               std::chrono::milliseconds deadline) = 0;
  // `bytes` = at each rank's piece what that rank has there. Pieces, in bytes, as above, for any number of ranks.
  virtual Status gather_pieces(std::span<std::byte> bytes, std::span<const Piece> pieces,
                               std::chrono::milliseconds deadline) = 0;

  // Copies the bytes of rank `root` to all ranks.
  virtual Status broadcast(std::span<std::byte> bytes, int root, std::chrono::milliseconds deadline) = 0;
};

// For implementations: kInvalid where sizes do not go together.
Status check_reduce_scatter(size_t values, size_t part, int ranks);
Status check_all_gather(size_t part_bytes, size_t all_bytes, int ranks);
Status check_root(int root, int ranks);
Status check_pieces(size_t elements, std::span<const Piece> pieces, int ranks);
Status check_tree(int ranks);

}  // namespace tandem::collectives
