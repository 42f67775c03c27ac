// Records of a tape's operations, for host and device, and the runs of rows for attention's backward pass. Private to
// the tapes.
#pragma once

#include <vector>

#include "kernels/attention.h"
#include "trainer/learn/token_tree.h"

namespace tandem::trainer {

enum class TapeKind {
  kEmbed,
  kNorm,
  kLinear,
  kLinearOnto,
  kNormOnto,
  kHeadNorm,
  kAttention,
  kExpandLatents,
  kProjectValues,
  kSwiglu,
  kDispatch,
  kGroupedLinear,
  kCombine
};

template <typename Tensor>
struct TapeRecord {
  TapeKind kind{};
  int weight = 0;
  int second_weight = 0;  // of keys, where `weight` is that of queries
  int bias = -1;
  int layer = 0;
  size_t routes = 0;  // which of the routes
  Tensor in = {};
  Tensor out = {};
  bool kept = true;  // false: `out` lives in scratch and is computed again when it is needed
};

// A tree as runs of rows with their paths, which the runs point into: it may be moved, not copied.
struct TreePaths {
  std::vector<std::vector<int>> paths;  // of each node, its own rows included
  std::vector<kernels::TreeRun> runs;

  TreePaths() = default;
  explicit TreePaths(const TokenTree& tree) : paths(tree.nodes.size()) {
    for (size_t n = 0; n < tree.nodes.size(); ++n) {
      const TreeNode& node = tree.nodes[n];
      if (node.parent >= 0) paths[n] = paths[node.parent];
      for (int i = 0; i < node.rows; ++i) paths[n].push_back(node.row + i);
      runs.push_back({node.row, node.rows, paths[n]});
    }
  }
  TreePaths(TreePaths&&) = default;
  TreePaths& operator=(TreePaths&&) = default;
};

}  // namespace tandem::trainer
