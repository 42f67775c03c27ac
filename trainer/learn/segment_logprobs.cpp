#include "trainer/learn/segment_logprobs.h"

#include <algorithm>
#include <numeric>

#include "base/segments.h"

namespace tandem::trainer {

Result<std::vector<float>> logprobs_of(Tape& tape, kernels::Stream& stream, const model::Weights& weights,
                                       std::span<const int32_t> tokens, std::span<const uint32_t> later_segments,
                                       std::span<const TokenPick> picks, float logit_scale,
                                       std::span<const KeptTokens> kept) {
  const auto segments = split_at(tokens, later_segments);
  const TokenTree tree = merge(segments);
  std::vector<int> row_of;  // of a token
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto rows = tree.rows_of(static_cast<int>(s), segments[s].size());
    row_of.insert(row_of.end(), rows.begin(), rows.end());
  }
  std::vector<TokenPick> sorted(picks.begin(), picks.end());
  for (TokenPick& pick : sorted) pick.row = row_of[static_cast<size_t>(pick.row)];
  std::vector<size_t> order(picks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (sorted[a].row != sorted[b].row || kept.empty()) return sorted[a].row < sorted[b].row;
    return std::ranges::lexicographical_compare(kept[a], kept[b]);
  });
  std::vector<TokenPick> in_order;
  std::vector<KeptTokens> kept_in_order;
  for (const size_t i : order) {
    in_order.push_back(sorted[i]);
    if (!kept.empty()) kept_in_order.push_back(kept[i]);
  }
  const auto computed = TRY(tape.forward(stream, weights, tree, in_order, nullptr, logit_scale, kept_in_order));
  std::vector<float> logprobs(picks.size());
  for (size_t i = 0; i < order.size(); ++i) logprobs[order[i]] = computed[i];
  return logprobs;
}

}  // namespace tandem::trainer
