#include "trainer/learn/anchors.h"

#include <map>
#include <utility>

#include "trainer/learn/batch.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

std::vector<std::vector<int64_t>> anchors_of(std::span<const Sample> samples) {
  std::map<std::vector<int32_t>, int64_t> numbers;
  std::vector<std::vector<int64_t>> anchors(samples.size());
  for (size_t s = 0; s < samples.size(); ++s) {
    const Sample& sample = samples[s];
    size_t shown = 0;  // where the tokens begin that were shown before the next turn
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.trained[i]) continue;
      const bool begins = !sample.trained[i - 1] || anchors[s].empty();
      if (begins) {
        const std::vector<int32_t> state(sample.tokens.begin() + static_cast<ptrdiff_t>(shown),
                                         sample.tokens.begin() + static_cast<ptrdiff_t>(i));
        anchors[s].push_back(numbers.try_emplace(state, static_cast<int64_t>(numbers.size())).first->second);
      }
      shown = i + 1;
    }
  }
  return anchors;
}

double shared_states(const LossBatch& batch) {
  std::map<std::pair<int64_t, int64_t>, int> turns;  // of a group and state
  for (size_t row = 0; row < batch.anchors.size(); ++row) {
    for (const int64_t anchor : batch.anchors[row]) ++turns[{batch.groups[row], anchor}];
  }
  double later = 0, shared = 0;
  for (size_t row = 0; row < batch.anchors.size(); ++row) {
    for (size_t turn = 1; turn < batch.anchors[row].size(); ++turn) {
      ++later;
      shared += turns[{batch.groups[row], batch.anchors[row][turn]}] > 1;
    }
  }
  return later > 0 ? shared / later : 0;
}

}  // namespace tandem::trainer
