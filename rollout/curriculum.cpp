#include "rollout/curriculum.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tandem::rollout {

Curriculum::Curriculum(std::vector<std::string> kinds, uint64_t seed) : seed_(derive_seed(seed, "curriculum")) {
  for (auto& name : kinds) kinds_.push_back({.name = std::move(name)});
}

std::vector<std::string> Curriculum::draw(uint64_t batch, int count) const {
  constexpr double kLeast = 0.125;  // of p (1 - p) <= 0.25: a solved kind that is seldom drawn is forgotten unseen
  constexpr double kProbe = 0.02;   // a kind nobody solves waits, but is tried again
  Random random(derive_seed(seed_, {batch}));
  std::vector<double> weights;
  double total = 0;
  for (const Kind& kind : kinds_) {
    const bool waits = kind.groups >= 2 && kind.success < 0.02;
    weights.push_back(waits ? kProbe : std::max(kLeast, kind.success * (1 - kind.success)));
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

double Curriculum::success(const std::string& kind) const {
  for (const Kind& k : kinds_) {
    if (k.name == kind) return k.success;
  }
  return 0;
}

}  // namespace tandem::rollout
