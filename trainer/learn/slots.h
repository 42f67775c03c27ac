// Virtual slots: fixed parts of a batch, so that any number of ranks sums gradients to the same bits.
//
// The groups of a batch are dealt to a fixed number of slots, a power of two, by a function of the batch alone. The
// gradient of a slot is summed in the slot's own order, and slots are added as a binary tree: (0 + 1) + (2 + 3), and so
// on. A slot without samples adds nothing. One rank owns the whole tree, or each of several a sub-tree; the additions,
// and so the bits, are the same.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/parameters.h"
#include "trainer/learn/buffers.h"
#include "trainer/learn/ranks.h"

namespace tandem::trainer {

// Samples of one group lie together in a batch: they share prefixes, and stay in one slot.
struct SlotGroup {
  size_t begin = 0, end = 0;  // samples
  uint64_t tokens = 0;        // of all of them
};

// kInvalid where `slots` is no power of two up to 1024.
Status check_slots(int slots);

// Assigns groups to slots. Groups are taken longest first (ties: by index); each goes to the slot with the fewest
// tokens so far (ties: the lowest). Returns for each slot its indices in `groups`, ascending.
std::vector<std::vector<size_t>> deal(std::span<const SlotGroup> groups, int slots);

// Memory and additions of a sum over slots, on the host or on a device (Tape::slot_memory). Its slices are valid as
// long as it lives.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  // Returns zeros, where the sum for `into` (zeros on the host) is accumulated.
  virtual Result<Slice> begin_sum(const Slice& into) = 0;
  // Copies the sum to `into`, in `ranges`.
  virtual Status end_sum(const Slice& into, std::span<const Piece> ranges) = 0;
  // Returns zeros for all elements of `spec`; the same memory for the same name.
  virtual Result<Slice> level(const SliceSpec& spec) = 0;
  // into += terms, element by element in `ranges`. The terms are not looked at again before their level is asked for.
  virtual Status add(const Slice& into, const Slice& terms, std::span<const Piece> ranges) = 0;
  // After an error: sum and levels may hold anything.
  virtual void forget() = 0;
  virtual size_t bytes() const = 0;  // but for `into`
};
std::unique_ptr<SlotMemory> slot_memory_of_host();

// The sum of the slots' gradients. Holds one slice of the model's size for each level of the tree, made when it is
// first needed: 3 for 8 slots.
class SlotSum {
 public:
  // `learned` says by parameter whose gradient is wanted (empty: all); the rest of a slice is not touched.
  SlotSum(const model::ParameterLayout& layout, std::span<const uint8_t> learned,
          std::unique_ptr<SlotMemory> memory = slot_memory_of_host());

  // Bytes that the sum of so many slots holds when all have samples, there where passes run, and what this holds. A
  // device has memory for what is not learned, too, and for the sum itself.
  static size_t bytes_of(const model::ParameterLayout& layout, std::span<const uint8_t> learned, int slots,
                         bool on_device = false);
  size_t bytes() const { return memory_->bytes(); }

  // Adds the gradient of one slot to `into`, which holds zeros. Returns whether the slot had a gradient.
  using AddSlot = std::function<Result<bool>(size_t slot, const Slice& into)>;

  // `into`, fp32 and of the host, holds zeros before, the sum afterwards; the number of slots is a power of two, and
  // `used` says which have samples. A rank adds the slots of its sub-tree. Returns whether there was a gradient. After
  // an error the content of `into` is unspecified.
  Result<bool> add(const Slice& into, const std::vector<bool>& used, const AddSlot& add_slot);

  // The elements that are learned, in ascending order.
  std::span<const Piece> learned() const { return ranges_; }

 private:
  Result<bool> add_tree(const Slice& into, size_t first, size_t count, const std::vector<bool>& used,
                        const AddSlot& add_slot);

  SliceSpec spec_of(int level) const;
  std::vector<Piece> ranges_;  // of what is learned
  size_t elements_;
  std::unique_ptr<SlotMemory> memory_;
};

}  // namespace tandem::trainer
