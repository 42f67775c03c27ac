// Slices among the ranks of a training: which part each rank owns, and sums and copies of them.
//
// Order of additions, deadlines and errors are those of collectives/group.h; an error names the slice. All ranks call
// with slices of the same name, size and format. The device must be the group's.
//
// Thread safety: as the group's.
#pragma once

#include <chrono>

#include "collectives/group.h"
#include "trainer/learn/buffers.h"

namespace tandem::trainer {

// The elements of `whole` that `rank` owns: parts differ by at most one element (collectives/slices.h).
Slice part_of_rank(const Slice& whole, int rank, int ranks);

// The sum over ranks, in place. kInvalid unless fp32 or bf16.
Status all_reduce(collectives::Group& group, const Slice& slice, std::chrono::milliseconds deadline);
// `part`, this rank's of equal parts of `whole`, = the sum over ranks of that part; it may not lie in `whole`.
Status reduce_scatter(collectives::Group& group, const ConstSlice& whole, const Slice& part,
                      std::chrono::milliseconds deadline);
// `whole` = the equal parts of all ranks, one behind the other; `part` may be its own place in it.
Status all_gather(collectives::Group& group, const ConstSlice& part, const Slice& whole,
                  std::chrono::milliseconds deadline);
// What rank `root` has.
Status broadcast(collectives::Group& group, const Slice& slice, int root, std::chrono::milliseconds deadline);

}  // namespace tandem::trainer
