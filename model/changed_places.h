// Where the bytes of a text came from that was made of another by changing some of its parts.
//
// Values; const methods from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tandem::model {

class ChangedPlaces {
 public:
  // A part of the result begins at `result`, and what it was made of at `source`; neither ever falls. The last one is
  // where both texts end.
  void add(size_t source, size_t result) {
    sources_.push_back(source);
    results_.push_back(result);
  }

  // The nearest place of the source for a place of the result, within its part.
  size_t source(size_t result) const {
    const auto next = std::upper_bound(results_.begin(), results_.end(), result);
    if (next == results_.end()) return sources_.back();
    const auto i = static_cast<size_t>(next - results_.begin()) - 1;
    return std::min(sources_[i] + (result - results_[i]), sources_[i + 1]);
  }

 private:
  std::vector<size_t> sources_, results_;
};

}  // namespace tandem::model
