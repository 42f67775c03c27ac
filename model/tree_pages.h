// Keys and values of a prefix tree, one layer at a time: the pages that a pass over a whole tree writes and reads.
//
// A node's path is the whole pages of its ancestors, then its own; where it starts in the middle of a page, it has a
// copy. All layers use the same memory.
//
// Thread safety: none; the owner's.
#pragma once

#include <span>
#include <vector>

#include "kernels/attention.h"

namespace tandem::model {

// A run of tokens without a branch.
struct TreeNode {
  int parent = -1;
  int row = 0;  // of the batch: nodes lie one after another, parents before children
  int rows = 0;
  int position = 0;  // of the first token in its samples
};

// Which pages the nodes of a tree have, counted from 0.
struct NodePages {
  int copied_from = -1;  // the ancestors' last page, where the node starts in its middle
  size_t own_from = 0;
  std::vector<int> pages = {};
};
struct TreeLayout {
  std::vector<NodePages> nodes;
  int pages = 0;
};
TreeLayout lay_out_pages(std::span<const TreeNode> nodes);

template <typename T>
class TreePages {
 public:
  explicit TreePages(const kernels::AttentionShape& shape) : shape_(shape) {}
  // Finds the pages of every node. `nodes` must live until the last `attention`.
  void lay_out(std::span<const TreeNode> nodes);
  // Writes the keys and values of all rows, `stride` elements from row to row, then attends: kernels::attention with
  // `shape`, which is the layer's.
  struct Rows {
    const T* queries = nullptr;
    const T* keys = nullptr;
    const T* values = nullptr;
    size_t stride = 0;
    T* out = nullptr;
    size_t out_stride = 0;
    float* log_sum = nullptr;
  };
  Status attention(kernels::Stream& stream, const kernels::AttentionShape& shape, const Rows& rows);

 private:
  kernels::BasicKeyValuePage<T> page_at(int page);
  void copy(int from, int to);

  const kernels::AttentionShape shape_;
  std::span<const TreeNode> nodes_;
  TreeLayout layout_;
  std::vector<std::vector<kernels::BasicKeyValuePage<T>>> pointers_;  // of each node's pages
  std::vector<kernels::BasicQueryRun<T>> runs_;
  std::vector<T> memory_;
};

extern template class TreePages<kernels::bf16>;
extern template class TreePages<float>;

}  // namespace tandem::model
