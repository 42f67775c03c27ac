// Samples that share prefixes, merged so that every distinct prefix is computed once.
//
// Samples of one group share the prompt, and often much of the first turn; the turns of an episode share everything
// before them. Equal prefixes have equal states and equal logprobs, so the tree's forward pass gives each sample's own
// bits and its gradient is the sum over the samples that pass through a node (MiniMax "Forge" and others call it
// prefix-tree merging).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "model/tree_pages.h"

namespace tandem::trainer {

using model::TreeNode;

struct TokenTree {
  std::vector<TreeNode> nodes;
  std::vector<int32_t> tokens;  // of all rows
  std::vector<int32_t> positions;
  std::vector<int> last_node;  // of each sample: where it ends
  // Rows of sample `sample` in order of position, its whole path.
  std::vector<int> rows_of(int sample, size_t length) const;
};

// The number of rows of a tree while samples are added, without making the tree: a sample adds what it does not share
// with its neighbours in sorted order. Linear in the tokens, but for a logarithm of the number of samples. The samples
// must outlive it.
class TreeRows {
 public:
  int rows() const { return rows_; }
  int rows_with(std::span<const int32_t> sample) const;
  void add(std::span<const int32_t> sample);

 private:
  using View = std::span<const int32_t>;
  struct Before {
    bool operator()(View a, View b) const;
  };
  std::set<View, Before> samples_;
  int rows_ = 0;
};

// Deterministic: a function of the samples and their order.
TokenTree merge(std::span<const std::span<const int32_t>> samples);

}  // namespace tandem::trainer
