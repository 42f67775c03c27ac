// A group of processes with a GPU each, over NCCL.
//
// NCCL's own sums choose their algorithm, and with it their order, by size, topology and version; so NCCL only moves
// bytes here. A sum is: every rank sends each other rank that rank's slice (grouped ncclSend and ncclRecv), the slices
// of all ranks are added in the order of ranks by tandem_cuda_sum_parts, and, for all_reduce, the sums go round the
// same way. That moves as many bytes as NCCL's own all-reduce over a ring does, twice a rank's values, and takes as
// much memory as the values again.
//
// Spans are of memory of the GPU that the group was made for; a call returns once its stream has passed it. The
// stream's earlier work comes first.
//
// A rank that dies is seen by NCCL's own sockets, or by the deadline. The communicator is aborted then, so that no
// kernel of it stays on the GPU.
#pragma once

#include <memory>

#include "collectives/group.h"
#include "collectives/nccl_library.h"
#include "kernels/cuda/library.h"

namespace tandem::collectives {

struct NcclSettings {
  kernels::cuda::Library kernels;
  TandemCudaStream stream = nullptr;  // of the caller, who keeps it as long as the group
  std::chrono::milliseconds deadline{60'000};
};

// `meeting` is a group of the same ranks by which they agree on a communicator; it is not needed afterwards. kNotFound
// or kUnfit: no NCCL, see nccl_library.h; kDeadline, kUnavailable: a rank that did not come.
Result<std::unique_ptr<Group>> meet_by_nccl(Group& meeting, NcclLibrary nccl, NcclSettings settings);

}  // namespace tandem::collectives
