#include "rollout/books/branching.h"

#include <algorithm>

#include "base/random.h"
#include "rollout/books/seeds.h"

namespace tandem::rollout {

std::optional<TrunkTerms> trunk_of(const RunPlan& plan, uint64_t first, int size, uint64_t episode) {
  const auto ways = static_cast<uint64_t>(plan.branch.ways);
  if (ways <= 1) return std::nullopt;
  const uint64_t family = first + (episode - first) / ways * ways;
  const uint64_t members = std::min(ways, first + static_cast<uint64_t>(size) - family);
  if (members < 2) return std::nullopt;
  const auto turns = static_cast<uint64_t>(plan.branch.last_turn - plan.branch.first_turn + 1);
  const uint64_t draw = derive_seed(plan.seed, {kBranchStream, family});
  return TrunkTerms{.family = family,
                    .seed = derive_seed(plan.seed, {kSampleStream, family}),
                    .turn = static_cast<uint32_t>(plan.branch.first_turn) + static_cast<uint32_t>(draw % turns)};
}

}  // namespace tandem::rollout
