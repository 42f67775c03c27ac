#include "base/advantage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "base/text.h"

namespace tandem {

namespace {
constexpr std::array<std::string_view, 11> kNames = {"grpo",  "dr_grpo",   "rloo",  "reinforce++", "gae",  "opo",
                                                     "maxrl", "pass_at_k", "gigpo", "distill",     "torch"};

// Subsets are counted and not drawn: of rewards in ascending order the one at `place` (from 1) is the largest of
// C(place - 1, k - 1) of the C(n, k) subsets. Shares of them follow from each other, so that nothing overflows.
std::vector<double> subset_advantages(std::span<const double> rewards, size_t k, double std_epsilon) {
  const size_t n = rewards.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return rewards[i]; });
  // Below the largest reward, so that a group whose subsets all have it has 0 to the last bit.
  const auto at = [&](size_t place) { return rewards[order[place - 1]] - rewards[order[n - 1]]; };
  const auto number = [](size_t value) { return static_cast<double>(value); };
  double mean = 0, squares = 0;
  const auto over_subsets = [&](const auto& add) {
    double share = number(k) / number(n);
    for (size_t place = n; place >= k; --place) {
      add(share, at(place));
      if (place > 1) share *= number(place - k) / number(place - 1);
    }
  };
  over_subsets([&](double share, double largest) { mean += share * largest; });
  over_subsets([&](double share, double largest) { squares += share * (largest - mean) * (largest - mean); });
  const double deviation = std::sqrt(squares) + std_epsilon;
  std::vector<double> advantages(n);
  // Over the subsets with the sample at `place`: `own` is the share in which it is the largest, `above` the sum over
  // those in which a later one is.
  double own = 1, share = number(k - 1) / number(n - 1), above = 0;
  for (size_t place = n; place >= 1; --place) {
    const bool is_tie = place < n && at(place) == at(place + 1);
    advantages[order[place - 1]] = is_tie          ? advantages[order[place]]
                                   : deviation > 0 ? (above + own * at(place) - mean) / deviation
                                                   : 0;
    if (place == 1) break;
    above += share * at(place);
    own *= place > k ? number(place - k) / number(place - 1) : 0;
    if (place > 2) share *= place > k ? number(place - k) / number(place - 2) : 0;
  }
  return advantages;
}
}  // namespace

Result<AdvantageKind> advantage_kind(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<AdvantageKind>(i);
  }
  return fail(Status::invalid(fmt::format("advantage \"{}\" is not known{}", name, did_you_mean(name, kNames))));
}

std::string_view to_string(AdvantageKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::vector<double> group_advantages(std::span<const double> rewards, AdvantageKind kind, double std_epsilon, int k) {
  if (kind == AdvantageKind::kDistill) return std::vector<double>(rewards.size(), 0.0);
  std::vector<double> advantages(rewards.begin(), rewards.end());
  if (rewards.size() < 2 || is_of_tokens(kind)) return advantages;
  const auto n = static_cast<double>(rewards.size());
  // Without a difference there is no signal; the mean of equal numbers need not be that number to the last bit.
  if (std::ranges::all_of(rewards, [&](double reward) { return reward == rewards[0]; }))
    return std::vector<double>(rewards.size(), 0.0);
  if (kind == AdvantageKind::kPassAtK)
    return subset_advantages(rewards, std::min(static_cast<size_t>(std::max(k, 1)), rewards.size() - 1), std_epsilon);
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / n;
  double squares = 0;
  for (double& a : advantages) {
    a -= mean;
    squares += a * a;
  }
  const double deviation = std::sqrt(squares / (n - 1));
  for (double& a : advantages) {
    if (kind == AdvantageKind::kGrpo) a /= deviation + std_epsilon;
    if (kind == AdvantageKind::kRloo) a *= n / (n - 1);
    if (kind == AdvantageKind::kMaxRl) a /= mean + std_epsilon;
  }
  return advantages;
}

void shuffle_within(std::vector<std::vector<double>>& rewards, uint64_t seed) {
  std::vector<double> all;
  for (const auto& group : rewards) all.insert(all.end(), group.begin(), group.end());
  Random random(seed);
  random.shuffle(all);
  size_t next = 0;
  for (auto& group : rewards) {
    for (double& reward : group) reward = all[next++];
  }
}

}  // namespace tandem
