#include "trainer/learn/token_tree.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace tandem::trainer {

namespace {

class Merger {
 public:
  explicit Merger(std::span<const std::span<const int32_t>> samples) : samples_(samples) {
    tree_.last_node.assign(samples.size(), -1);
  }

  TokenTree run() {
    std::vector<int> all(samples_.size());
    std::iota(all.begin(), all.end(), 0);
    // Neighbours after sorting share the longest prefixes; ties keep the order in which they came.
    std::stable_sort(all.begin(), all.end(), [&](int a, int b) {
      return std::lexicographical_compare(samples_[a].begin(), samples_[a].end(), samples_[b].begin(),
                                          samples_[b].end());
    });
    grow(all, -1, 0);
    return std::move(tree_);
  }

 private:
  // `members` are sorted and agree on everything before `position`.
  void grow(std::span<const int> members, int parent, int position) {
    for (size_t begin = 0; begin < members.size();) {
      if (samples_[members[begin]].size() == static_cast<size_t>(position)) {
        tree_.last_node[members[begin++]] = parent;
        continue;
      }
      const int32_t token = samples_[members[begin]][position];
      size_t end = begin + 1;
      while (end < members.size() && samples_[members[end]][position] == token) ++end;
      const auto branch = members.subspan(begin, end - begin);
      // Sorted, so what the first and the last share all between them share.
      const auto first = samples_[branch.front()].subspan(position), last = samples_[branch.back()].subspan(position);
      const auto shared = std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin();
      const int length = static_cast<int>(shared);
      const int node = static_cast<int>(tree_.nodes.size());
      tree_.nodes.push_back({parent, static_cast<int>(tree_.tokens.size()), length, position});
      for (int i = 0; i < length; ++i) {
        tree_.tokens.push_back(first[i]);
        tree_.positions.push_back(position + i);
      }
      grow(branch, node, position + length);
      begin = end;
    }
  }

  std::span<const std::span<const int32_t>> samples_;
  TokenTree tree_;
};

}  // namespace

std::vector<int> TokenTree::rows_of(int sample, size_t length) const {
  std::vector<int> rows(length);
  size_t end = length;
  for (int node = last_node[sample]; node >= 0; node = nodes[node].parent) {
    for (int i = nodes[node].rows - 1; i >= 0; --i) rows[--end] = nodes[node].row + i;
  }
  return rows;
}

bool TreeRows::Before::operator()(View a, View b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

int TreeRows::rows_with(View sample) const {
  const auto shared_with = [&](View other) {
    return std::mismatch(sample.begin(), sample.end(), other.begin(), other.end()).first - sample.begin();
  };
  const auto next = samples_.lower_bound(sample);
  ptrdiff_t shared = 0;
  if (next != samples_.end()) shared = shared_with(*next);
  if (next != samples_.begin()) shared = std::max(shared, shared_with(*std::prev(next)));
  return rows_ + static_cast<int>(sample.size()) - static_cast<int>(shared);
}

void TreeRows::add(View sample) {
  rows_ = rows_with(sample);
  samples_.insert(sample);
}

TokenTree merge(std::span<const std::span<const int32_t>> samples) { return Merger(samples).run(); }

}  // namespace tandem::trainer
