// Advantages of the episodes of a group: each reward against those of the others.
//
// Sources: GRPO (Shao et al. 2024), Dr.GRPO (Liu et al. 2025), RLOO (Ahmadian et al. 2024), MaxRL (Tajwar et al. 2026),
// Pass@k Training (Chen et al. 2025), for rewards beside 0 and 1 by the largest of a subset (Walder and Karkhanis
// 2025). Pure functions in double.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem {

// Kinds for which is_of_tokens() holds need more than the rewards of a group: trainer/learn/batch_advantages.h.
enum class AdvantageKind : uint8_t {
  kGrpo,
  kDrGrpo,
  kRloo,
  kReturns,
  kGae,
  kOpo,
  kMaxRl,
  kPassAtK,
  kGigpo,
  kDistill,
  kTorch
};
Result<AdvantageKind> advantage_kind(std::string_view name);
std::string_view to_string(AdvantageKind kind);
constexpr bool is_of_tokens(AdvantageKind kind) {
  return kind == AdvantageKind::kReturns || kind == AdvantageKind::kGae || kind == AdvantageKind::kOpo ||
         kind == AdvantageKind::kGigpo || kind == AdvantageKind::kTorch;
}

// grpo: (r - mean) / (std + epsilon) with the unbiased std, a group of one has mean 0 and std 1; dr_grpo: r - mean;
// rloo: r - mean of the others; maxrl: (r - mean) / (mean + epsilon), a group of one has mean 0. Of a kind that is of
// tokens: the rewards.
//
// pass_at_k: a subset of `k` samples has the largest of their rewards; of all subsets mean and std are taken, and a
// sample has (mean of the subsets with it - mean) / (std + epsilon). `k` is 1 at least, and held below the group's
// size.
//
// distill: 0, for rewards are no part of it.
std::vector<double> group_advantages(std::span<const double> rewards, AdvantageKind kind, double std_epsilon, int k);

// Permutes all rewards of a batch among its episodes: a negative control, which must not learn.
void shuffle_within(std::vector<std::vector<double>>& rewards, uint64_t seed);

}  // namespace tandem
