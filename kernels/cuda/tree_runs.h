// Prefix trees as the flat arrays that the backward pass of attention reads on a GPU.
//
// Thread safety: a pure function.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/tandem_cuda.h"

namespace tandem::kernels::cuda {

struct TreeRuns {
  std::vector<TandemCudaTreeRun> runs;  // tree after tree, in their order
  std::vector<int32_t> row_run;         // [rows], -1: in no run
  std::vector<int32_t> paths;           // one after the other
};
// kInvalid names the run that lies outside `rows`, shares a row with another, or whose path does not end with its own
// rows, in order: what the kernels take on trust.
Result<TreeRuns> tree_runs(std::span<const std::vector<TreeRun>> trees, int rows);

}  // namespace tandem::kernels::cuda
