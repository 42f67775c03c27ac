// Detects spikes of the gradient norm by the norms before.
//
// Thread safety: as any value.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace tandem::trainer {

class NormHistory {
 public:
  static constexpr size_t kKept = 32;  // norms
  static constexpr size_t kLeast = 8;  // that must be known before any is a spike

  // Whether `norm` is above `times` the median of up to kKept before it. Spikes enter the history too, so a norm that
  // stays large soon counts as usual.
  bool is_spike(double norm, double times) const;
  void add(double norm);

  // Oldest first.
  std::vector<double> norms() const { return {norms_.begin(), norms_.end()}; }
  // The newest of `norms`.
  void restore(const std::vector<double>& norms);

 private:
  std::deque<double> norms_;
};

}  // namespace tandem::trainer
