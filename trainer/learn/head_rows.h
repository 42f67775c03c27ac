// The rows that the language model's head computes for the picks of a pass: one for each row of the tree and each set
// of tokens that its picks were drawn from.
//
// Pure. Thread safety: as any value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/lm_head.h"

namespace tandem::trainer {

// What a pick was drawn from: tokens, ascending, with the pick's among them; empty: all.
using KeptTokens = std::span<const int32_t>;

struct HeadRows {
  std::vector<int> rows;                  // of the tree, ascending; one may come twice, with other kept tokens
  std::vector<kernels::TokenPick> picks;  // as they were given, by these rows
  std::vector<uint64_t> kept;             // kernels::LmHead::kept; empty: all rows keep all tokens

  // `kept_of` is empty or has one for each pick; picks of one row with the same kept tokens follow each other. kInvalid
  // where kept tokens are not of the vocabulary or not ascending.
  static Result<HeadRows> of(std::span<const kernels::TokenPick> picks, std::span<const KeptTokens> kept_of,
                             int vocabulary);
};

// For each pick which of those rows is its.
std::vector<size_t> head_row_of(std::span<const kernels::TokenPick> picks, std::span<const KeptTokens> kept_of);

}  // namespace tandem::trainer
