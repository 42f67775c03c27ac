#include "rollout/books/task_order.h"

#include <numeric>

#include "base/random.h"

namespace tandem::rollout {

uint64_t TaskOrder::next(const std::string& kind) {
  Progress& progress = progress_[kind];
  if (progress.left.empty()) {
    progress.left.resize(counts_.at(kind).train);
    std::iota(progress.left.begin(), progress.left.end(), 0);
    Random random(derive_seed(derive_seed(seed_, kind), {progress.rounds++}));
    random.shuffle(progress.left);
  }
  const uint64_t task = progress.left.back();
  progress.left.pop_back();
  return task;
}

Json TaskOrder::save() const {
  Json saved = Json::object();
  for (const auto& [kind, progress] : progress_) saved[kind] = {progress.rounds, progress.left};
  return saved;
}

void TaskOrder::load(const Json& saved) {
  for (const auto& [kind, progress] : saved.items())
    progress_[kind] = {progress.at(0).get<uint64_t>(), progress.at(1).get<std::vector<uint64_t>>()};
}

std::vector<std::string> trainable(const std::vector<std::string>& kinds, const CountsByKind& counts) {
  if (counts.empty()) return kinds;
  std::vector<std::string> found;
  for (const auto& kind : kinds) {
    const auto count = counts.find(kind);
    if (count != counts.end() && count->second.train > 0) found.push_back(kind);
  }
  return found;
}

}  // namespace tandem::rollout
