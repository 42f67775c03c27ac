// Communication among the ranks of a training: the shards of each rank, and the collectives of a step.
//
// All ranks call the same functions in the same order. Sums are those of the slots' tree (slots.h), of which each rank
// has one sub-tree, so their number changes no bit. Errors are those of collectives/group.h: kUnavailable or kDeadline
// names the rank that is gone, and the group is of no more use then. One rank alone needs no group and waits for
// nobody.
//
// Copies stand for the same rank; use one at a time.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/group.h"
#include "trainer/learn/buffers.h"

namespace tandem::trainer {

using collectives::Piece;

// The shard of the masters of each rank: whole pieces of the norm's sum (kernels::kSquaresPiece), as even as possible.
// With few elements the last ranks own none.
std::vector<Piece> shards_of(size_t elements, int ranks);

// kInvalid unless so many ranks can share the slots of a batch: a power of two, and no more than there are slots.
Status check_ranks(int ranks, int slots);

class Ranks {
 public:
  // The longest time that a rank waits for another in a step.
  static constexpr std::chrono::minutes kDeadline{30};

  Ranks() = default;  // one rank
  explicit Ranks(std::shared_ptr<collectives::Group> group) : group_(std::move(group)) {}

  int rank() const { return group_ ? group_->rank() : 0; }
  int count() const { return group_ ? group_->ranks() : 1; }
  bool is_first() const { return rank() == 0; }

  // Sets values[i] to the value of rank owners[i].
  template <typename T>
  Status exchange(std::span<T> values, std::span<const int> owners) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count() == 1) return {};
    std::vector<T> all(values.size() * static_cast<size_t>(count()));
    TRY(group_->all_gather(std::as_bytes(std::span<const T>(values)), std::as_writable_bytes(std::span(all)),
                           kDeadline));
    for (size_t i = 0; i < values.size(); ++i) values[i] = all[static_cast<size_t>(owners[i]) * values.size() + i];
    return {};
  }

  // The sum over ranks, in each rank's piece of `values`; the other elements are of no use afterwards.
  Status reduce(std::span<float> values, std::span<const Piece> pieces);
  // All-gather: each rank's piece on all ranks. Pieces count elements of the slice.
  Status gather(const Slice& slice, std::span<const Piece> pieces);
  // Copies the bytes of the first rank to all.
  Status broadcast(std::span<std::byte> bytes);
  // Exchanges a Status: the error of the lowest rank that has one, else ok. An error of the group itself is returned as
  // it is.
  Status agree(const Status& own);

 private:
  std::shared_ptr<collectives::Group> group_;
};

}  // namespace tandem::trainer
