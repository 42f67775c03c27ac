#include "kernels/cuda/tree_runs.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::kernels::cuda {

namespace {

const char* fault(const TreeRun& run, int rows, const std::vector<int32_t>& row_run) {
  if (run.row < 0 || run.rows < 0 || run.rows > rows - run.row) return "lies outside the rows";
  if (run.path.size() < static_cast<size_t>(run.rows)) return "has a path that is shorter than itself";
  for (const int row : run.path) {
    if (row < 0 || row >= rows) return "has a path that leaves the rows";
  }
  for (int i = 0; i < run.rows; ++i) {
    if (run.path[run.path.size() - run.rows + i] != run.row + i) return "has a path that does not end with its rows";
    if (row_run[run.row + i] >= 0) return "shares a row with another";
  }
  return nullptr;
}

}  // namespace

Result<TreeRuns> tree_runs(std::span<const std::vector<TreeRun>> trees, int rows) {
  TreeRuns flat;
  flat.row_run.assign(rows, -1);
  for (size_t tree = 0; tree < trees.size(); ++tree) {
    const auto begin = static_cast<int32_t>(flat.runs.size());
    const auto end = static_cast<int32_t>(begin + trees[tree].size());
    for (size_t i = 0; i < trees[tree].size(); ++i) {
      const TreeRun& run = trees[tree][i];
      if (const char* what = fault(run, rows, flat.row_run)) {
        return fail(Status::invalid(fmt::format("attention_backward: run {} of tree {} {}", i, tree, what)));
      }
      std::fill_n(flat.row_run.begin() + run.row, run.rows, static_cast<int32_t>(flat.runs.size()));
      flat.runs.push_back({run.row, run.rows, static_cast<int32_t>(flat.paths.size()),
                           static_cast<int32_t>(run.path.size()), begin, end});
      flat.paths.insert(flat.paths.end(), run.path.begin(), run.path.end());
    }
  }
  return flat;
}

}  // namespace tandem::kernels::cuda
