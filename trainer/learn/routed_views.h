// Prefix trees of samples with routes: rows are shared where both tokens and routes are equal.
//
// A token and its route are one symbol, a number; symbols stand in the order of their tokens, so a tree of symbols is
// the tree of tokens where routes tell nothing apart. What no pass of the engine has computed, such as the last token
// of a conversation, has no route, and goes with any sample that says the same.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/expert_routes.h"
#include "base/status.h"
#include "trainer/learn/token_tree.h"

namespace tandem::trainer {

struct Sample;

// The experts of a tree's rows in each layer with experts.
struct TreeRoutes {
  RouteShape shape;
  std::vector<int32_t> ids;  // [layers][rows][top_k]; -1 first where the row has none
  // The experts of one layer that has some, counted among those.
  std::span<const int32_t> layer(size_t index) const {
    const size_t size = ids.size() / shape.layers;
    return std::span(ids).subspan(index * size, size);
  }
};

class RoutedViews {
 public:
  // Views of samples that stay where they are. kInvalid where their routes are not of `shape`, the model's.
  static Result<RoutedViews> create(std::span<const Sample* const> samples, const RouteShape& shape);

  bool any() const { return !symbols_.empty(); }  // else views are the tokens themselves
  // The segments of sample `sample`.
  std::vector<std::span<const int32_t>> segments(size_t sample) const;
  // Replaces the symbols in a tree of such segments by tokens, and returns their routes.
  TreeRoutes translate(TokenTree& tree) const;

 private:
  struct Symbol {
    int32_t token = 0;
    std::span<const uint8_t> route;  // empty: none
  };
  RouteShape shape_;
  std::span<const Sample* const> samples_;
  std::vector<Symbol> symbols_;
  std::vector<std::vector<int32_t>> of_samples_;
};

}  // namespace tandem::trainer
