#include "trainer/learn/batch_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace tandem::trainer {

namespace {

constexpr uint64_t kGroupOrderStream = 13;  // of a step and epoch

}  // namespace

Status check(const BatchUpdates& updates) {
  if (updates.epochs < 1) return Status::invalid(fmt::format("epochs must be 1 or more, not {}", updates.epochs));
  if (updates.minibatches < 1)
    return Status::invalid(fmt::format("minibatches must be 1 or more, not {}", updates.minibatches));
  if (!(updates.kl_stop >= 0) || !std::isfinite(updates.kl_stop))
    return Status::invalid(fmt::format("kl_stop must be 0 or more, not {}", updates.kl_stop));
  return {};
}

std::vector<std::vector<size_t>> minibatches_of(const BatchUpdates& updates, size_t groups, uint64_t step, int epoch) {
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t{0});
  Random(derive_seed(updates.seed, {kGroupOrderStream, step, static_cast<uint64_t>(epoch)})).shuffle(order);
  const size_t parts = std::min(groups, static_cast<size_t>(updates.minibatches));
  std::vector<std::vector<size_t>> minibatches;
  for (size_t part = 0; part < parts; ++part) {
    minibatches.emplace_back(order.begin() + static_cast<ptrdiff_t>(groups * part / parts),
                             order.begin() + static_cast<ptrdiff_t>(groups * (part + 1) / parts));
    std::ranges::sort(minibatches.back());
  }
  return minibatches;
}

}  // namespace tandem::trainer
