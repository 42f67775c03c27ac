#include "trainer/learn/head_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::trainer {

std::vector<size_t> head_row_of(std::span<const kernels::TokenPick> picks, std::span<const KeptTokens> kept_of) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < picks.size(); ++i) {
    const bool same = i > 0 && picks[i].row == picks[i - 1].row &&
                      (kept_of.empty() || std::ranges::equal(kept_of[i], kept_of[i - 1]));
    rows.push_back(i == 0 ? 0 : rows.back() + (same ? 0 : 1));
  }
  return rows;
}

Result<HeadRows> HeadRows::of(std::span<const kernels::TokenPick> picks, std::span<const KeptTokens> kept_of,
                              int vocabulary) {
  if (!kept_of.empty() && kept_of.size() != picks.size())
    return fail(Status::invalid(fmt::format("{} picks with {} sets of kept tokens", picks.size(), kept_of.size())));
  HeadRows head;
  std::vector<KeptTokens> of_rows;
  const auto places = head_row_of(picks, kept_of);
  for (size_t i = 0; i < picks.size(); ++i) {
    if (places[i] == head.rows.size()) {
      head.rows.push_back(picks[i].row);
      of_rows.push_back(kept_of.empty() ? KeptTokens() : kept_of[i]);
    }
    head.picks.push_back({static_cast<int32_t>(places[i]), picks[i].token});
  }
  if (std::ranges::all_of(of_rows, [](const KeptTokens& kept) { return kept.empty(); })) return head;
  const size_t words = kernels::padded_vocabulary(vocabulary) / 64;
  head.kept.assign(of_rows.size() * words, 0);
  for (size_t row = 0; row < of_rows.size(); ++row) {
    const auto own = std::span(head.kept).subspan(row * words, words);
    if (of_rows[row].empty()) std::ranges::fill(own, ~uint64_t{0});
    int32_t before = -1;
    for (const int32_t token : of_rows[row]) {
      if (token <= before || token >= vocabulary)
        return fail(Status::invalid(
            fmt::format("kept token {} behind {}: expected ascending ids below {}", token, before, vocabulary)));
      own[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
      before = token;
    }
  }
  return head;
}

}  // namespace tandem::trainer
