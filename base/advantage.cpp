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
constexpr std::array<std::string_view, 7> kNames = {"grpo", "dr_grpo", "rloo", "reinforce++", "gae", "opo", "maxrl"};
}

Result<AdvantageKind> advantage_kind(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<AdvantageKind>(i);
  }
  return fail(Status::invalid(fmt::format("advantage \"{}\" is not known{}", name, did_you_mean(name, kNames))));
}

std::string_view to_string(AdvantageKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::vector<double> group_advantages(std::span<const double> rewards, AdvantageKind kind, double std_epsilon) {
  std::vector<double> advantages(rewards.begin(), rewards.end());
  if (rewards.size() < 2 || is_of_tokens(kind)) return advantages;
  const auto n = static_cast<double>(rewards.size());
  // Without a difference there is no signal; the mean of equal numbers need not be that number to the last bit.
  if (std::ranges::all_of(rewards, [&](double reward) { return reward == rewards[0]; }))
    return std::vector<double>(rewards.size(), 0.0);
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
