#include "trainer/learn/norm_history.h"

#include <algorithm>

namespace tandem::trainer {

bool NormHistory::is_spike(double norm, double times) const {
  if (norms_.size() < kLeast) return false;
  std::vector<double> sorted = norms();
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return norm > times * *middle;
}

void NormHistory::add(double norm) {
  norms_.push_back(norm);
  if (norms_.size() > kKept) norms_.pop_front();
}

void NormHistory::restore(const std::vector<double>& norms) {
  norms_.clear();
  for (const double norm : norms) add(norm);
}

}  // namespace tandem::trainer
