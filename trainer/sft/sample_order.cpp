#include "trainer/sft/sample_order.h"

#include <numeric>

#include "base/random.h"
#include "trainer/sft/seeds.h"

namespace tandem::trainer {

SampleOrder::SampleOrder(std::vector<int> lengths, int tokens_per_step, uint64_t seed)
    : lengths_(std::move(lengths)), tokens_per_step_(tokens_per_step), seed_(seed) {}

void SampleOrder::compute(int epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  order_.resize(lengths_.size());
  std::iota(order_.begin(), order_.end(), 0);
  Random(derive_seed(seed_, {kEpochOrderStream, static_cast<uint64_t>(epoch)})).shuffle(order_);
  begins_ = {0};
  int64_t tokens = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const int length = lengths_[order_[i]];
    if (i > begins_.back() && tokens + length > tokens_per_step_) {
      begins_.push_back(i);
      tokens = 0;
    }
    tokens += length;
  }
  begins_.push_back(order_.size());
  if (static_cast<size_t>(epoch) + 1 == first_steps_.size())
    first_steps_.push_back(first_steps_.back() + static_cast<int64_t>(begins_.size()) - 1);
}

int64_t SampleOrder::steps_of(int epochs) {
  while (first_steps_.size() <= static_cast<size_t>(epochs)) compute(static_cast<int>(first_steps_.size()) - 1);
  return first_steps_[static_cast<size_t>(epochs)] - 1;
}

SampleOrder::Step SampleOrder::step(int64_t number) {
  while (first_steps_.back() <= number) compute(static_cast<int>(first_steps_.size()) - 1);
  int epoch = static_cast<int>(first_steps_.size()) - 1;
  while (first_steps_[static_cast<size_t>(epoch)] > number) --epoch;
  compute(epoch);
  const auto place = static_cast<size_t>(number - first_steps_[static_cast<size_t>(epoch)]);
  return {std::span<const uint32_t>(order_).subspan(begins_[place], begins_[place + 1] - begins_[place]), epoch};
}

}  // namespace tandem::trainer
