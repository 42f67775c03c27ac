// The input of `tandem loss`: the tokens of a batch as padded rows.
//
// Thread safety: as any value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::trainer {

// A matrix, row-major; a row is a sequence, padded on the right or the left. Empty where it was not given.
using Rows = std::vector<double>;

// The trunk of a row: its first tokens, which were sampled once for all rows of the same `number`. `tokens`: how many
// of them count.
struct RowTrunk {
  int64_t number = -1;  // below 0: nothing
  size_t tokens = 0;
  friend bool operator==(const RowTrunk&, const RowTrunk&) = default;
};

struct LossBatch {
  size_t rows = 0, length = 0;
  Rows logprobs;
  std::vector<uint8_t> mask;  // which tokens count
  Rows old_logprobs;      // the policy before the step; empty: rollout_logprobs, and without them logprobs themselves
  Rows rollout_logprobs;  // of the sampler
  Rows ref_logprobs, values;
  Rows teacher_logprobs;        // empty: no teacher
  Rows advantages;              // empty: from rewards
  Rows rewards;                 // of a token; empty: advantages are given
  std::vector<int64_t> groups;  // of a row: which rows are samples of one prompt; for advantages of groups
  // Per row, the anchor state of each of its turns, for AdvantageKind::kGigpo. Equal numbers in one group mean the same
  // state.
  std::vector<std::vector<int64_t>> anchors;
  std::vector<int64_t> turns;    // of a token that counts: which turn of its row it is of, from 0; -1 elsewhere
  std::vector<RowTrunk> trunks;  // of a row; empty: there are none
  // Numbers of a row's episode, by name. NaN: the episode has none of this name.
  std::map<std::string, std::vector<double>> metrics;
  bool is_credited = false;  // `advantages` are those of branches already (branch_credit.h)
};

}  // namespace tandem::trainer
