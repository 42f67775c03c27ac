#include "rollout/books/curriculum.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tandem::rollout {

Curriculum::Curriculum(std::vector<std::string> kinds, uint64_t seed) : seed_(derive_seed(seed, "curriculum")) {
  for (auto& name : kinds) kinds_.push_back({.name = std::move(name)});
}

std::vector<std::string> Curriculum::draw(uint64_t batch, int count) const {
  // Nearly even: kinds that are drawn seldom are unlearned while others pull at the same weights.
  constexpr double kSolved = 0.5;  // has little to teach, and shows early when it is forgotten
  constexpr double kWaits = 0.25;  // nobody solves it yet; tried again now and then
  Random random(derive_seed(seed_, {batch}));
  std::vector<double> weights;
  double total = 0;
  for (const Kind& kind : kinds_) {
    const bool waits = kind.groups >= 4 && kind.success < 0.02;
    weights.push_back(waits ? kWaits : kind.success > 0.95 ? kSolved : 1.0);
    total += weights.back();
  }
  // Systematic sampling: one comb of `count` teeth over the weights laid end to end.
  std::vector<std::string> drawn;
  const double step = total / count;
  double tooth = random.uniform() * step, reach = 0;
  std::vector<size_t> order(kinds_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(order);
  for (const size_t i : order) {
    reach += weights[i];
    for (; tooth < reach && static_cast<int>(drawn.size()) < count; tooth += step) drawn.push_back(kinds_[i].name);
  }
  while (static_cast<int>(drawn.size()) < count)
    drawn.push_back(kinds_[order.back()].name);  // rounding at the very end
  random.shuffle(drawn);
  return drawn;
}

void Curriculum::observe(const std::string& kind, double success) {
  for (Kind& k : kinds_) {
    if (k.name != kind) continue;
    ++k.groups;
    k.success += (success - k.success) * std::max(0.15, 1.0 / (k.groups + 1));
  }
}

Json Curriculum::save() const {
  Json saved = Json::object();
  for (const Kind& kind : kinds_) saved[kind.name] = {kind.success, kind.groups};
  return saved;
}

void Curriculum::load(const Json& saved) {
  for (Kind& kind : kinds_) {
    kind.success = saved.at(kind.name).at(0).get<double>();
    kind.groups = saved.at(kind.name).at(1).get<int>();
  }
}

}  // namespace tandem::rollout
