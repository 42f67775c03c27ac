#include "model/tree_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::model {

TreeLayout lay_out_pages(std::span<const TreeNode> nodes) {
  TreeLayout layout;
  for (const TreeNode& node : nodes) {
    NodePages of;
    const int whole = node.position / kernels::kPageTokens;
    if (node.parent >= 0) {
      const auto& parent = layout.nodes[node.parent].pages;
      of.pages.assign(parent.begin(), parent.begin() + whole);
      if (node.position % kernels::kPageTokens != 0) of.copied_from = parent[whole];
    }
    of.own_from = whole;
    const int needed = (node.position + node.rows + kernels::kPageTokens - 1) / kernels::kPageTokens;
    while (static_cast<int>(of.pages.size()) < needed) of.pages.push_back(layout.pages++);
    layout.nodes.push_back(std::move(of));
  }
  return layout;
}

template <typename T>
void TreePages<T>::lay_out(std::span<const TreeNode> nodes) {
  nodes_ = nodes;
  layout_ = lay_out_pages(nodes);
  runs_.clear();
  // Slots that no token fills must be finite; they are hidden, so stale numbers of another layer do no harm.
  memory_.resize(std::max(memory_.size(), layout_.pages * kernels::page_elements(shape_)));
  pointers_.assign(nodes.size(), {});
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (const int page : layout_.nodes[n].pages) pointers_[n].push_back(page_at(page));
    runs_.push_back({nodes[n].row, nodes[n].rows, nodes[n].position, pointers_[n]});
  }
}

template <typename T>
Status TreePages<T>::attention(kernels::Stream& stream, const kernels::AttentionShape& shape, const Rows& rows) {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const TreeNode& node = nodes_[n];
    const NodePages& pages = layout_.nodes[n];
    if (pages.copied_from >= 0) copy(pages.copied_from, pages.pages[pages.own_from]);
    const size_t first = node.row * rows.stride;
    TRY(kernels::write_pages(stream, shape_, rows.keys + first, rows.stride, rows.values + first, rows.stride,
                             node.rows, node.position, pointers_[n]));
  }
  return kernels::attention(stream, shape, rows.queries, rows.stride, runs_, rows.out, rows.out_stride, rows.log_sum);
}

template <typename T>
kernels::BasicKeyValuePage<T> TreePages<T>::page_at(int page) {
  T* const keys = memory_.data() + page * kernels::page_elements(shape_);
  return {keys, keys + kernels::page_keys(shape_)};
}

template <typename T>
void TreePages<T>::copy(int from, int to) {
  std::memcpy(page_at(to).keys, page_at(from).keys, kernels::page_elements(shape_) * sizeof(T));
}

template class TreePages<kernels::bf16>;
template class TreePages<float>;

}  // namespace tandem::model
